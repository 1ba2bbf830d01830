"""A full disk: the error surfaces, nothing is half done, and the journal works again when there is room."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.storage.journal import Journal
from tests.house.tree import ROOT
from tests.storage.journals import NOW, SAT, SMALL, opened, opening, sample, spool

FULL_WHILE_ACCEPTING = """
import resource, sqlite3, sys
from pathlib import Path
from headgate.storage.journal import Journal
from tests.storage.journals import *
journal = Journal(Path(sys.argv[1]), "main")
tasks = opened(journal, *(opening(i) for i in range(200)))
accepted = journal.accept([sample(task) for task in tasks[:50]], NOW)
size = (Path(journal.place) / "journal.db-wal").stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, hard))
failures = []
for attempt in range(3):
    for call in (
        lambda: journal.accept([sample(task) for task in tasks[50:]], NOW),
        lambda: journal.open([opening(i) for i in range(200, 2_000)]),
    ):
        try:
            call()
        except sqlite3.Error as error:
            failures.append(str(error))
assert len(failures) == 6, failures
assert not any("transaction" in failure for failure in failures), failures
assert (journal.open_count(), journal.spool_count()) == (150, 50)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert len(journal.accept([sample(task) for task in tasks[50:]], NOW)) == 150
assert opened(journal, opening(200))[0].sequence == 200
journal.close()
"""


def _room_for(journal: Journal, pages: int) -> None:
    used = journal._db._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db._db.execute(f"PRAGMA max_page_count = {used + pages}")


def test_a_transaction_that_finds_no_room_changes_nothing_and_says_why(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "main")
    spool(journal, 3)
    tasks = opened(journal, *(opening(i) for i in range(3, 203)))
    _room_for(journal, 1)
    with pytest.raises(sqlite3.Error, match="full"):
        journal.accept([sample(task) for task in tasks], NOW)
    with pytest.raises(sqlite3.Error, match="full"):
        journal.open([opening(i) for i in range(203, 2_000)])
    assert (journal.open_count(), journal.spool_count()) == (200, 3)
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW, 3)]}
    _room_for(journal, 10_000)
    assert len(journal.accept([sample(task) for task in tasks], NOW)) == 200
    assert opened(journal, opening(203))[0].sequence == 203
    journal.close()


def test_a_journal_closes_on_a_full_disk_and_its_heir_finds_everything(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "main")
    spool(journal, 3)
    opened(journal, opening(3))
    _room_for(journal, 0)
    journal.close()
    heir = Journal(tmp_path, "main")
    assert [task.sequence for task in heir.adopt([SAT], [SMALL])] == [3]
    assert heir.spool_state().rows == 3
    heir.close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_a_disk_that_is_full_at_the_commit_is_survived(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_WHILE_ACCEPTING, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    db = sqlite3.connect(tmp_path / "main" / "journal.db")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
