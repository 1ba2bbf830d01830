"""What needs a PostgreSQL server of its own: one that is cut off, and one that is reached through a Unix socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores import open_store
from headgate_bench.postgres import PrivatePostgres
from tests.jobqueue.stores.values import a_job, changed, claimed, submitted

pytestmark = pytest.mark.slow


@pytest.fixture
def own_server() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


@pytest.mark.long
def test_a_commit_of_many_megabytes_goes_through_a_socket_that_takes_little_at_once(
    own_server: PrivatePostgres,
) -> None:
    store = open_store(own_server.socket_url()).own("me")
    jobs = [a_job(number)._replace(last_error="x" * 1_000) for number in range(10_000)]
    store.commit(submitted(*jobs))
    store.commit(changed(*map(claimed, jobs)))
    assert len(store.load().in_progress) == 10_000
    store.close()


def test_commits_outlive_the_server_and_owning_again_goes_on(own_server: PrivatePostgres) -> None:
    store = open_store(own_server.url()).own("me")
    store.commit(submitted(a_job(0), a_job(1)))
    store.commit(changed(claimed(a_job(1))))
    before = store.load()
    own_server.stop(immediately=True)
    with pytest.raises(StoreFailedError, match="could not be written"):
        store.commit(submitted(a_job(2), first_entry=2))
    with pytest.raises(StoreFailedError, match="could not be opened"):
        store.own("me")
    own_server.start()
    again = open_store(own_server.url())
    assert again.own("me").load() == before
    again.commit(submitted(a_job(2), first_entry=2))
    again.close()
