"""Several processes on one journal, and processes that are killed: nothing is lost and nothing is given twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import psycopg
import pytest

from headgate.durable.databases import PostgresAddress
from headgate.storage.journal import Journal
from headgate.storage.journal_database import JournalPlace
from tests.house.tree import ROOT
from tests.storage.journals import NOW, SAT, SMALL, spool

ROUNDS = int(os.environ.get("KILLS", "15"))


class Nursery:
    """Starts processes that use a journal, and hears what they say."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._orders = cast("TextIO", process.stdin)
        self._words = cast("TextIO", process.stdout)
        self._heard: deque[list[str]] = deque()
        assert self.hear() == ["up"]

    def start(self, *words: object) -> int:
        """Start a child; return its process id."""
        self._orders.write(" ".join(map(str, words)) + "\n")
        self._orders.flush()
        while (said := self._words.readline().split())[0] != "pid":
            self._heard.append(said)
        return int(said[1])

    def hear(self) -> list[str]:
        """Return the next line that any child said."""
        return self._heard.popleft() if self._heard else self._words.readline().split()

    def kill(self, pid: int) -> None:
        """Kill a child and wait until it is dead."""
        os.kill(pid, signal.SIGKILL)
        self._orders.write(f"reap {pid}\n")
        self._orders.flush()
        assert self.hear() == ["dead"]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.storage.journal_nursery"]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield Nursery(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def named(place: JournalPlace, request: pytest.FixtureRequest) -> str:
    """The place, for another process."""
    return str(place) if isinstance(place, Path) else str(request.getfixturevalue("journal_database"))


def end_leases(place: JournalPlace) -> None:
    """Let the time pass after which processes count as dead; on one machine none passes."""
    if isinstance(place, PostgresAddress):
        with psycopg.connect(**place.parameters()) as database:
            database.execute("UPDATE headgate_journal_main.holders SET seen_at = '-infinity', lease_s = -1e9")


def test_processes_that_begin_at_the_same_moment_share_the_due_times_of_a_new_journal(
    nursery: Nursery, place: JournalPlace, named: str
) -> None:
    begin_at = time.time() + 0.3
    for _ in range(4):
        nursery.start("rival", named, begin_at)
    taken = []
    for _ in range(124):
        match nursery.hear():
            case ["took", sequence, due]:
                taken.append((int(sequence), float(due)))
            case words:
                assert words == ["done"]
    assert sorted(sequence for sequence, _ in taken) == list(range(120))
    assert {due for _, due in taken} == {NOW + 60.0 * number for number in range(120)}
    journal = Journal(place, "main")
    assert (journal.open_count(), journal.spool_count()) == (0, 120)
    journal.close()


def test_processes_that_begin_at_the_same_moment_all_open_a_new_journal(nursery: Nursery, tmp_path: Path) -> None:
    for number in range(20):
        begin_at = time.time() + 0.1
        for _ in range(6):
            nursery.start("visitor", tmp_path / str(number), begin_at)
        assert [nursery.hear() for _ in range(6)] == [["opened"]] * 6


def test_a_holder_that_stands_still_is_alive_and_one_that_was_killed_is_not(nursery: Nursery, tmp_path: Path) -> None:
    pid = nursery.start("holder", tmp_path)
    _, task_id = nursery.hear()
    os.kill(pid, signal.SIGSTOP)
    journal = Journal(tmp_path, "main")
    assert journal.adopt([SAT], [SMALL]) == []
    nursery.kill(pid)
    assert [task.task_id for task in journal.adopt([SAT], [SMALL])] == [task_id]
    assert [file.name for file in (Path(journal.place) / "holders").iterdir()] == [journal.holder]
    journal.close()


def test_processes_that_are_killed_lose_nothing_accepted_and_give_nothing_twice(
    nursery: Nursery, tmp_path: Path, place: JournalPlace, named: str
) -> None:
    rng = random.Random(15)
    accepted: Counter[str] = Counter()
    batches: dict[str, list[str]] = {}
    stored: set[str] = set()
    first = 1
    for _ in range(ROUNDS if isinstance(place, Path) else ROUNDS // 3):  # a server is asked more slowly
        pid = nursery.start("victim", named, first, tmp_path / "diary", rng.randrange(1, 80))
        assert nursery.hear() == ["ready"]
        nursery.kill(pid)
        end_leases(place)
        diary = [
            line.split() for line in (tmp_path / "diary").read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]
        first += len(diary)
        for what, *words in diary:
            if what == "accepted":
                accepted.update(words)
            elif what == "batch":
                assert batches.setdefault(words[0], words[1:]) == words[1:]
            elif what == "stored":
                stored.update(words[1:])
    journal = Journal(place, "main")
    open_tasks = {task.task_id for task in journal.adopt([SAT], [SMALL])}
    spooled = {s.task_id for s in journal.spooled()}
    ever_opened = journal.history(NOW).pairs[SMALL, SAT].next_sequence
    assert accepted.most_common(1)[0][1] == 1
    assert set(accepted) <= spooled | stored
    assert len(open_tasks) == journal.open_count()
    assert open_tasks.isdisjoint(spooled | set(accepted))
    # Every task that was ever opened is open, spooled, or was in a batch that was to be removed.
    assert 0 <= ever_opened - len(open_tasks) - len(spooled) <= len(stored)
    journal.check()
    journal.close()


def test_a_batch_of_a_killed_process_keeps_its_id_and_its_rows(
    nursery: Nursery, tmp_path: Path, place: JournalPlace, named: str
) -> None:
    with_rows = Journal(place, "main")
    spool(with_rows, 8)
    with_rows.close()
    pid = nursery.start("victim", named, 7, tmp_path / "diary", 4)
    assert nursery.hear() == ["ready"]
    nursery.kill(pid)
    end_leases(place)
    diary = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
    named = {words[1]: words[2:] for words in diary if words[0] == "batch"}
    heir = Journal(place, "main")
    heir.adopt([], [])
    while (batch := heir.next_batch(4)) is not None:
        rows = [s.task_id for s in batch.samples]
        assert named.get(batch.batch_id, rows) == rows
        heir.batch_stored(batch.batch_id)
    heir.close()
