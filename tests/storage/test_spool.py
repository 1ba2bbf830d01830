"""What a spool keeps in memory, and what it reads back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from headgate.core import Secret
from headgate.storage import Journal
from headgate.storage.spool import RecentChunks
from tests.storage.journals import NOW, opened, opening, sample, spool


def test_chunks_are_kept_up_to_a_size_and_the_oldest_go_first() -> None:
    chunks = RecentChunks()
    for position in range(5):
        chunks.add(position, (), 10_000_000)
    assert [position for position in range(5) if chunks.take(position) is not None] == [2, 3, 4]
    chunks.add(9, (), 32_000_000)
    chunks.add(9, (), 32_000_000)
    assert chunks.take(9) == ()


def test_a_batch_that_an_heir_reads_back_is_the_one_that_its_process_had_in_memory(tmp_path: Path) -> None:
    dead = Journal(tmp_path, "main")
    spool(dead, 7)
    batch = dead.next_batch(4)
    assert batch is not None
    dead.close()
    heir = Journal(tmp_path, "main")
    heir.adopt([], [])
    assert heir.next_batch(100) == batch
    heir.batch_stored(batch.batch_id)
    rest = heir.next_batch(100)
    assert rest is not None
    assert [s.sequence for s in rest.samples] == [4, 5, 6]
    heir.close()


def test_an_accepted_batch_that_was_rolled_back_leaves_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "main")
    first, second = opened(journal, opening(0), opening(1))
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_count", lambda counted: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            journal.accept([sample(first)], NOW)
    assert journal.accept([sample(second)], NOW) == {second.task_id}
    batch = journal.next_batch(10)
    assert batch is not None
    assert [s.task_id for s in batch.samples] == [second.task_id]
    assert journal.accept([sample(first)], NOW) == {first.task_id}
    journal.close()


def test_fields_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "main")
    kept = spool(journal, 2)
    ((position, chunk),) = journal._db._db.execute("SELECT position, samples FROM spooled_samples").fetchall()
    rows = [row | {"mood": "good"} for row in orjson.loads(chunk)]
    journal._db._db.execute("UPDATE spooled_samples SET samples = ? WHERE position = ?", (orjson.dumps(rows), position))
    assert journal.spooled() == kept
    journal.close()


def test_no_key_of_this_process_is_written_to_the_disk_or_handed_to_the_store(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "main")
    key = Secret('spooled-"key"-5f1d0c77e2').reveal()
    (task,) = opened(journal, opening())
    said = orjson.dumps([["assistant", f"it is {key}"]]).decode()
    told = replace(sample(task), conversation=said, why=f"it said {key.encode().hex()}", error=None)
    journal.accept([told], NOW)
    batch = journal.next_batch(10)
    assert batch is not None
    stored = batch.samples[0]
    assert (stored.conversation, stored.why) == ('[["assistant","it is [redacted]"]]', "it said [redacted]")
    journal.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"5f1d0c77e2" not in written
    assert key.encode().hex().encode() not in written
