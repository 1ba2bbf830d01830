"""A damaged file of a queue is one error that names the next step, and is repaired as a journal is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores import open_store
from headgate.net.token_stores import open_tokens
from headgate.storage import repair
from tests.jobqueue.stores.values import a_job, submitted

PAGE = 4_096


def _filled(path: Path) -> list[str]:
    store = open_store(f"sqlite:///{path}").own("me")
    store.commit(submitted(*(a_job(number) for number in range(300))))
    store.close()
    return [a_job(number).job_id for number in range(300)]


@pytest.mark.parametrize(("end", "least"), [(0.3, 0), (0.6, 100), (0.7, 200), (0.9, 300)])
def test_jobs_before_a_cut_are_saved_and_those_that_it_took_are_told(tmp_path: Path, end: float, least: int) -> None:
    path = tmp_path / "queue.db"
    ids = _filled(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * end) // PAGE * PAGE + PAGE // 2])
    done = repair(path, 0.0)
    again = open_store(f"sqlite:///{path}").own("me")
    saved = len(again.jobs(ids))
    assert saved >= least
    assert ("rows of jobs" in done.lost) == (saved < 300)
    again.close()


def test_a_queue_that_lost_the_record_of_its_version_is_opened_by_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    ids = _filled(path)
    open_tokens(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM migrations")
    store = open_store(f"sqlite:///{path}").own("me")
    assert len(store.jobs(ids)) == 300
    store.close()


def test_a_damaged_queue_names_the_next_step_and_keeps_the_jobs_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    _filled(path)
    store = open_store(f"sqlite:///{path}")
    data = bytearray(path.read_bytes())
    begin = data.index(a_job(150).job_id.encode()) // PAGE * PAGE
    data[begin : begin + PAGE] = bytes(PAGE)
    path.write_bytes(data)
    store.own("me")
    with pytest.raises(StoreFailedError, match="malformed") as told:
        store.load()
    store.close()
    assert f"headgate repair {path}" in told.value.next_step
    assert repair(path, 0.0).lost
    again = open_store(f"sqlite:///{path}").own("me")
    assert 200 < len(again.jobs([a_job(number).job_id for number in range(300)])) < 300
    assert again.load().next_seq == 300
    again.close()
