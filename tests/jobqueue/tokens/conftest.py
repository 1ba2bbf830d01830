"""A clock that stands still, and an empty database of every kind for tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.net.authority import Authority, Verdict
from headgate.net.token_stores import TokenStore, open_tokens


class StillClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def identified(authority: Authority, text: str | None, now: float) -> Verdict:
    """Return who a token is of, as the servers ask for it."""
    return asyncio.run(authority.identify(text, now))


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database that has no tokens yet."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/queue/jobs.db"


@pytest.fixture
def database(database_url: str) -> Iterator[TokenStore]:
    store = open_tokens(database_url)
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TokenStore]:
    """An empty store of every kind."""
    match request.param:
        case "memory":
            url = "memory:"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case _:
            url = request.getfixturevalue("postgres_url")
    opened = open_tokens(url)
    yield opened
    opened.close()
