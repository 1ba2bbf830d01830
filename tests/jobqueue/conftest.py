"""What tests of the job queue share: a real PostgreSQL server, and a database of one's own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate_bench.postgres import PrivatePostgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PrivatePostgres]:
    """A PostgreSQL server that belongs to this run of the tests; it takes about two seconds to make, once."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PrivatePostgres) -> Iterator[str]:
    """The address of an empty database; nobody is connected to it after the test."""
    with postgres_server.fresh_database() as url:
        yield url
