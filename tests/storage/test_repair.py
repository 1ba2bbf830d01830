"""A damaged file is one error that names the next step; what is whole is saved, and what is not is told."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.core import DAY_S, Spending, errors
from headgate.storage import Journal, JournalThread, SpendingReport, repair
from tests.storage.journals import NOW, opened, opening, sample

PAGE = 4_096
ROWS = 40


def _filled(folder: Path) -> tuple[Path, list[str]]:
    """A journal with spooled samples of a page each, and open tasks."""
    journal = Journal(folder, "c", fsync=False)
    ids = []
    for number in range(ROWS):
        (task,) = opened(journal, opening(number))
        ids.append(task.task_id)
        journal.accept([replace(sample(task), why="x" * 3_000)], NOW + number)
    opened(journal, *(opening(number) for number in range(ROWS, ROWS + 10)))
    journal.record_pause("acme/small@main", 2, NOW + DAY_S)
    journal.exchange_spending({"acme/small@main": SpendingReport(Spending(7, 7, 7))}, NOW)
    journal.close()
    return Path(journal.place) / "journal.db", ids


def _damage(path: Path, holding: bytes, garbage: Callable[[bytes], bytes]) -> None:
    """Overwrite the first page that holds something."""
    data = bytearray(path.read_bytes())
    begin = data.index(holding) // PAGE * PAGE
    data[begin : begin + PAGE] = garbage(bytes(data[begin : begin + PAGE]))
    path.write_bytes(data)


def _noise(page: bytes) -> bytes:
    return random.Random(0).randbytes(len(page))


def _flipped(page: bytes) -> bytes:
    """As a disk that loses bits: SQLite sees nothing of it, the page has its shape."""
    return page.replace(b'"why":"', b'"why"!"')


@pytest.mark.parametrize("garbage", [_noise, _flipped])
async def test_a_damaged_page_of_the_spool_is_one_error_with_the_next_step(
    tmp_path: Path, garbage: Callable[[bytes], bytes]
) -> None:
    path, ids = _filled(tmp_path)
    _damage(path, ids[20].encode(), garbage)
    journal = Journal(tmp_path, "c")
    thread = JournalThread(journal)
    try:
        await thread.write(journal.adopt, [], [])
        with pytest.raises(errors.JournalError, match="is damaged") as told:
            await thread.call(journal.spooled)
        assert f"headgate repair {path}" in told.value.next_step
        with pytest.raises(errors.JournalError, match="is damaged"):
            journal.check()
    finally:
        thread.close()


@pytest.mark.parametrize("garbage", [_noise, _flipped])
def test_every_sample_outside_of_the_damaged_page_is_saved(tmp_path: Path, garbage: Callable[[bytes], bytes]) -> None:
    path, ids = _filled(tmp_path)
    _damage(path, ids[20].encode(), garbage)
    before = path.read_bytes()
    done = repair(path, NOW)
    assert done.kept_as is not None
    assert done.kept_as.read_bytes() == before
    assert done.lost == ("samples that the store had not confirmed: 1",)
    journal = Journal(tmp_path, "c")
    journal.check()
    assert [one.task_id for one in journal.spooled()] == ids[:20] + ids[21:]
    assert len(journal.adopt(["affine:sat"], ["acme/small@main"])) == 10
    assert journal.history(NOW).pauses == {"acme/small@main": (2, NOW + DAY_S)}
    (answer,) = journal.exchange_spending({}, NOW + 60.0).values()
    assert [spent for _, spent in answer.news] == [Spending(7, 7, 7)]
    assert journal.next_batch(100) is not None
    journal.close()


def test_the_index_of_the_spool_is_made_anew_from_its_samples(tmp_path: Path) -> None:
    path, ids = _filled(tmp_path)
    with sqlite3.connect(path) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'spool'").fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    data[(root - 1) * PAGE : root * PAGE] = _noise(bytes(PAGE))
    path.write_bytes(data)
    repair(path, NOW)
    journal = Journal(tmp_path, "c")
    assert sorted(one.task_id for one in journal.spooled()) == sorted(ids)
    journal.adopt([], [])
    assert journal.spool_state().rows == ROWS
    journal.close()


def test_no_number_is_given_twice_when_the_pairs_are_lost(tmp_path: Path) -> None:
    path, _ = _filled(tmp_path)
    with sqlite3.connect(path) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pairs'").fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    data[(root - 1) * PAGE : root * PAGE] = _noise(bytes(PAGE))
    path.write_bytes(data)
    done = repair(path, NOW)
    assert any("from the store" in each for each in done.lost)
    journal = Journal(tmp_path, "c")
    assert journal.is_new()
    (task,) = opened(journal, opening(ROWS + 20))
    assert task.sequence >= ROWS
    journal.close()


def test_damage_anywhere_is_repaired_and_the_campaign_goes_on(tmp_path: Path) -> None:
    path, ids = _filled(tmp_path / "whole")
    whole = path.read_bytes()
    for seed in range(16):
        damaged = Journal.file_of(tmp_path / str(seed), "c")
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(whole)
        _repaired_after_damage(damaged, ids, seed)


def _repaired_after_damage(path: Path, ids: list[str], seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        begin = rng.randrange(len(data) // PAGE) * PAGE
        data[begin : begin + PAGE] = rng.randbytes(PAGE)
    path.write_bytes(data)
    done = repair(path, NOW)
    journal = Journal(path.parents[1], "c")
    journal.check()
    saved = {one.task_id for one in journal.spooled()}
    assert saved <= set(ids), seed
    assert done.lost or saved == set(ids), seed
    if data[:PAGE] == done.kept_as.read_bytes()[:PAGE] and data[:16] == b"SQLite format 3\0":
        assert journal.adopt([], []) == [], seed
    journal.close()
    assert repair(path, NOW).kept_as is None, seed


def test_a_file_without_damage_is_left_as_it_is(tmp_path: Path) -> None:
    path, _ = _filled(tmp_path)
    before = path.read_bytes()
    assert repair(path, NOW).kept_as is None
    assert path.read_bytes() == before


def test_a_journal_in_use_is_not_repaired(tmp_path: Path) -> None:
    path, ids = _filled(tmp_path)
    journal = Journal(tmp_path, "c")
    _damage(path, ids[20].encode(), _noise)
    with pytest.raises(errors.JournalError, match="locked"):
        repair(path, NOW)
    journal.close()


def test_what_is_no_database_at_all_is_put_aside(tmp_path: Path) -> None:
    path, _ = _filled(tmp_path)
    path.write_bytes(_noise(bytes(20 * PAGE)))
    with pytest.raises(errors.JournalError, match="not a database") as told:
        Journal(tmp_path, "c")
    assert "headgate repair" in told.value.next_step
    assert repair(path, NOW).lost == ("everything",)
    Journal(tmp_path, "c").close()
