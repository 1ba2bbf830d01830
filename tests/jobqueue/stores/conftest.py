"""Every store, for one suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.jobqueue import Store
from tests.jobqueue.stores.places import Place, place_at

IN_POSTGRES = pytest.param("postgres", marks=pytest.mark.slow)


def _place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    if kind == "postgres":
        return place_at(request.getfixturevalue("postgres_url"))
    return place_at("memory:" if kind == "memory" else f"sqlite:///{folder / 'queue.db'}")


@pytest.fixture(params=["memory", "sqlite", IN_POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind."""
    return _place(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", IN_POSTGRES])
def sql_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind that outlives a process."""
    return _place(request.param, request, tmp_path)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """An empty store of each kind, owned."""
    store = place.open().own("test")
    yield store
    store.close()


@pytest.fixture
def sql_store(sql_place: Place) -> Iterator[Store]:
    """An empty store of each kind that outlives a process, owned."""
    store = sql_place.open().own("test")
    yield store
    store.close()
