"""What was acknowledged is there after the database server was cut off, and its ledger goes on once it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores import open_store
from headgate.simulation import PrivatePostgres
from tests.jobqueue.stores.values import a_job, changed, claimed, submitted

pytestmark = pytest.mark.slow


@pytest.fixture
def own_server() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


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
