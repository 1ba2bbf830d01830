"""A place for a job queue to be tormented at, on each of the databases; import the fixtures that a test uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_bench.postgres import PrivatePostgres
from tests.chaos.queue_place import Nursery, QueuePlace

LONG_FORM_KILLS = 20
"""From as many kills on, processes are held to times, and leases are short: other tests run beside the short form."""


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def chaos_postgres() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


def _speed(kills: int) -> float:
    """Return how much faster than real time leases run out."""
    return 5.0 if kills >= LONG_FORM_KILLS else 2.5


@pytest.fixture
def sqlite_place(nursery: Nursery, tmp_path: Path, kills: int) -> Iterator[QueuePlace]:
    yield QueuePlace(tmp_path / "queue", f"sqlite:////{str(tmp_path).lstrip('/')}/queue.db", nursery, _speed(kills))
    nursery.kill_all()


@pytest.fixture
def postgres_place(
    nursery: Nursery, tmp_path: Path, chaos_postgres: PrivatePostgres, kills: int
) -> Iterator[QueuePlace]:
    with chaos_postgres.fresh_database() as url:
        yield QueuePlace(tmp_path / "queue", url, nursery, _speed(kills))
        nursery.kill_all()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> QueuePlace:
    found = request.getfixturevalue(f"{request.param}_place")
    assert isinstance(found, QueuePlace)
    return found
