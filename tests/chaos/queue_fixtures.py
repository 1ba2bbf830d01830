"""A place for a job queue to be tormented at, on each of the databases; import the fixtures that a test uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_bench.postgres import PrivatePostgres
from tests.chaos.queue_place import Nursery, QueuePlace


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def chaos_postgres() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def sqlite_place(nursery: Nursery, tmp_path: Path) -> Iterator[QueuePlace]:
    yield QueuePlace(tmp_path / "queue", f"sqlite:////{str(tmp_path).lstrip('/')}/queue.db", nursery)
    nursery.kill_all()


@pytest.fixture
def postgres_place(nursery: Nursery, tmp_path: Path, chaos_postgres: PrivatePostgres) -> Iterator[QueuePlace]:
    with chaos_postgres.fresh_database() as url:
        yield QueuePlace(tmp_path / "queue", url, nursery)
        nursery.kill_all()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> QueuePlace:
    found = request.getfixturevalue(f"{request.param}_place")
    assert isinstance(found, QueuePlace)
    return found
