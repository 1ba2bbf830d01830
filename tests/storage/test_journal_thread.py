"""The journal off the event loop: calls in order, errors to their caller, and an end that waits."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from headgate.storage import Journal, JournalThread, ServedRun, served_runs
from tests.storage.journals import NOW, opened, opening, sample
from tests.telemetry.factories import FixedClock


async def test_calls_run_in_order_on_one_other_thread(tmp_path: Path) -> None:
    thread = JournalThread(Journal(tmp_path, "main"))
    order: list[tuple[int, int]] = []
    await asyncio.gather(*(thread.call(lambda n=n: order.append((n, threading.get_ident()))) for n in range(50)))
    thread.close()
    assert [number for number, _ in order] == list(range(50))
    assert {ident for _, ident in order}.isdisjoint({threading.get_ident()})
    assert len({ident for _, ident in order}) == 1


async def test_the_loop_goes_on_while_a_call_is_under_way(tmp_path: Path) -> None:
    thread = JournalThread(Journal(tmp_path, "main"))
    gate = threading.Event()
    call = asyncio.create_task(thread.call(gate.wait))
    await asyncio.sleep(0)
    assert not call.done()
    gate.set()
    assert await call
    thread.close()


@pytest.mark.parametrize("inline", [False, True])
async def test_an_error_of_a_call_reaches_its_caller_and_no_other(tmp_path: Path, inline: bool) -> None:
    thread = JournalThread(Journal(tmp_path, "main"), inline=inline)
    (task,) = opened(thread.journal, opening(0))
    with pytest.raises(sqlite3.ProgrammingError):
        await thread.call(thread.journal._db._db.execute, "SELECT ?", ())
    assert await thread.call(thread.journal.accept, [sample(task)], NOW) == {task.task_id}
    thread.close()


async def test_a_cancelled_caller_does_not_stop_the_call_under_way(tmp_path: Path) -> None:
    thread = JournalThread(Journal(tmp_path, "main"))
    begun, gate, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait()
        done.set()

    call = asyncio.create_task(thread.call(slow))
    await asyncio.to_thread(begun.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    thread.close()
    assert done.is_set()


@pytest.mark.parametrize("inline", [False, True])
async def test_closing_waits_for_calls_and_is_legal_twice(tmp_path: Path, inline: bool) -> None:
    thread = JournalThread(Journal(tmp_path, "main"), inline=inline)
    (task,) = opened(thread.journal, opening(0))
    call = asyncio.create_task(thread.call(thread.journal.accept, [sample(task)], NOW))
    await asyncio.sleep(0)
    thread.close()
    thread.close()
    assert await call == {task.task_id}
    heir = Journal(tmp_path, "main")
    assert heir.spool_count() == 1
    heir.close()


async def test_an_error_of_closing_is_not_swallowed(tmp_path: Path) -> None:
    thread = JournalThread(Journal(tmp_path, "main"))
    thread.journal._db._db.close()
    (Path(thread.journal.place) / "holders" / thread.journal.holder).unlink()
    (Path(thread.journal.place) / "holders").rmdir()
    (Path(thread.journal.place) / "holders").write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        thread.close()


class Patient(FixedClock):
    """A clock that stands still, also while one sleeps."""

    async def sleep(self, seconds: float) -> None:
        del seconds


async def test_a_run_that_began_on_a_full_disk_is_found_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, is_full = JournalThread(Journal(tmp_path, "main"), inline=True, clock=Patient()), [True]
    real = os.pwrite

    def pwrite(handle: int, data: bytes, offset: int) -> int:
        if is_full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data, offset)

    def written() -> None:
        if is_full[0]:
            is_full[0] = False
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(os, "pwrite", pwrite)
    run = ServedRun("main", "r-1", "http://127.0.0.1:8765", "here", 0.0)
    await thread.call(thread.journal.announce, run)
    assert served_runs(tmp_path)[0] == {}
    await thread.write(written)
    assert list(served_runs(tmp_path)[0]) == [run]
    thread.close()
