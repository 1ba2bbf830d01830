"""A journal in a folder: its files, its locks, and what is no journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.core.errors import JournalError
from headgate.storage import Journal
from tests.storage.journals import opened, opening


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path, "main")
    yield made
    made.close()


@pytest.mark.parametrize(
    "name",
    ["spool_state", "assigned_batch", "free_chunks", "batch_positions", "remove_batch", "holders", "abandon_samples"],
)
def test_a_spool_of_days_is_not_read_through_for_one_batch(journal: Journal, name: str) -> None:
    values = {"holder": "h"} if ":holder" in journal._db._sql[name] else ["h"] * journal._db._sql[name].count("?")
    plan = [row[3] for row in journal._db._db.execute("EXPLAIN QUERY PLAN " + journal._db._sql[name], values)]
    of_spool = [step for step in plan if "spool" in step]
    assert of_spool
    assert [step for step in of_spool if "INDEX" not in step and "PRIMARY KEY" not in step] == []


def test_ended_batches_are_forgotten_without_reading_all_requests(journal: Journal) -> None:
    """Each commit of samples forgets them, and a day's requests may lie in batches."""
    plan = [row[3] for row in journal._db._db.execute("EXPLAIN QUERY PLAN " + journal._db._sql["drop_ended_batches"])]
    assert [step.split(" (")[0] for step in plan if "batched_requests" in step] == [
        "SEARCH batched_requests USING COVERING INDEX batched_by_batch"
    ]


def test_closing_twice_is_legal_and_leaves_no_lock_behind(journal: Journal) -> None:
    journal.close()
    journal.close()
    assert list((Path(journal.place) / "holders").iterdir()) == []


def test_the_journal_of_another_campaign_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, "main").close()
    (tmp_path / "main").rename(tmp_path / "moved")
    with pytest.raises(JournalError, match="belongs to campaign 'main', not 'moved'"):
        Journal(tmp_path, "moved")


def test_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(journal: Journal, tmp_path: Path) -> None:
    opened(journal, opening(0))
    journal.close()
    file = Path(journal.place) / "journal.db"
    with sqlite3.connect(file) as db:
        db.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
        db.execute("DROP TABLE pauses")
    db.close()
    with pytest.raises(JournalError, match="has format 3, this version reads 2"):
        Journal(tmp_path, "main")
    db = sqlite3.connect(file)
    assert "pauses" not in {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    db.close()
    assert list((Path(journal.place) / "holders").iterdir()) == []


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "main" / "journal.db"
    file.parent.mkdir()
    file.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(JournalError, match="cannot be opened: file is not a database"):
        Journal(tmp_path, "main")
    assert file.read_bytes().startswith(b"not a database")
    assert list((file.parent / "holders").iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc/headgate", "/dev/null/journal"])
def test_a_folder_that_cannot_be_written_is_an_error_with_a_next_step(folder: str) -> None:
    with pytest.raises(JournalError, match="cannot be opened") as refused:
        Journal(Path(folder), "main")
    assert "--journal" in str(refused.value)


def test_a_journal_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main" / "journal.db").mkdir(parents=True)
    with pytest.raises(JournalError, match="unable to open"):
        Journal(tmp_path, "main")
