"""One ledger at a time: second owners are refused, and dead ones leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.jobqueue import Store
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.job import Lane
from tests.house.tree import ROOT
from tests.jobqueue.stores.places import Place
from tests.jobqueue.stores.values import a_job, submitted


@contextmanager
def child_at(place: Place) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.jobqueue.stores.owner"],
        cwd=ROOT,
        env={**os.environ, "STORE_URL": place.url},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def word_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_owner_is_refused_until_the_first_closes(place: Place) -> None:
    first = place.open().own("the first server")
    with pytest.raises(StoreInUseError, match=r"the first server|this process"):
        place.open().own("the second server")
    first.commit(submitted(a_job(0)))
    first.close()
    second = place.open().own("the second server")
    assert second.load().next_seq == 1
    second.close()


def test_an_owner_cannot_own_once_more(store: Store) -> None:
    with pytest.raises(StoreInUseError):
        store.own("again")
    store.commit(submitted(a_job(0)))


def test_closing_twice_is_legal_and_owning_again_too(place: Place) -> None:
    store = place.open()
    store.close()
    store.own("one").commit(submitted(a_job(0)))
    store.close()
    store.close()
    assert store.own("two").load().next_seq == 1
    store.close()


def test_nothing_is_read_or_written_without_ownership(place: Place) -> None:
    store = place.open()
    with pytest.raises(StoreFailedError, match="not owned"):
        store.load()
    with pytest.raises(StoreFailedError, match="not owned"):
        store.jobs(["job-0"])
    with pytest.raises(StoreFailedError, match="not owned"):
        store.pending(Lane("", "", ""), None, 1)
    with pytest.raises(StoreFailedError, match="not owned"):
        store.reply("k")
    with pytest.raises(StoreFailedError, match="not owned"):
        store.commit(submitted(a_job(0)))


@pytest.mark.slow
def test_another_process_is_refused(sql_place: Place, sql_store: Store) -> None:
    with child_at(sql_place) as child:
        assert word_of(child) == "refused"
    sql_store.commit(submitted(a_job(0)))


@pytest.mark.slow
def test_another_process_that_owns_is_named(sql_place: Place) -> None:
    with child_at(sql_place) as child:
        assert word_of(child) == "owned"
        whose = f"process {child.pid} .the child." if sql_place.kind == "sqlite" else "headgate jobqueue: the child"
        with pytest.raises(StoreInUseError, match=whose):
            sql_place.open().own("me")


@pytest.mark.slow
def test_an_owner_that_is_killed_leaves_the_queue_free_and_its_commits_in_it(sql_place: Place) -> None:
    with child_at(sql_place) as child:
        assert word_of(child) == "owned"
        child.kill()
        child.wait()
        store = sql_place.open().own("the next one")
    assert store.pending(a_job(0).spec.lane, None, 9) == [a_job(0)]
    store.close()


def test_readers_need_no_ownership(place: Place) -> None:
    store = place.open().own("me")
    store.commit(submitted(a_job(0)))
    reader = place.open().reader()
    assert [one.entry for one in reader.history(-1, 9)] == [0]
    store.close()
    assert [one.entry for one in reader.history(-1, 9)] == [0]
    reader.close()
