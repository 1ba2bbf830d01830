"""Processes that use a journal and may be killed; one import serves them all.

Reads a role and its arguments per line and forks a child that plays it; a child's first words are its process id.
`reap PID` answers when that child is dead.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path

from headgate.core import Task
from headgate.core.errors import JournalError
from headgate.durable.databases import PostgresAddress
from headgate.storage.journal import Journal
from headgate.storage.journal_database import JournalPlace
from tests.storage.journals import NOW, SAT, SMALL, opened, opening, sample


def journal_place(named: str) -> JournalPlace:
    return PostgresAddress(named) if named.startswith("postgresql://") else Path(named)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def rival(folder: str, begin_at: str) -> None:
    """Take due times in a race, and accept a sample for each."""
    time.sleep(max(0.0, float(begin_at) - time.time()))  # rivals begin together
    journal = Journal(journal_place(folder), "main")
    for number in range(120):
        for task in journal.open([opening(number)]):
            if isinstance(task, Task):
                journal.accept([sample(task)], NOW)
                say("took", task.sequence, task.due_at)
    journal.close()
    say("done")


def visitor(folder: str, begin_at: str) -> None:
    """Open a journal together with others, and close it."""
    time.sleep(max(0.0, float(begin_at) - time.time()))
    try:
        Journal(journal_place(folder), "main").close()
    except JournalError as error:
        say("refused", error)
    else:
        say("opened")


def holder(folder: str) -> None:
    """Hold one open task until killed."""
    journal = Journal(journal_place(folder), "main")
    (task,) = opened(journal, opening(0))
    say("opened", task.task_id)
    while True:
        time.sleep(60)


def victim(folder: str, first: str, diary: str, lines: str) -> None:
    """Adopt, open, accept and store until killed; write each step down, and tell when the diary has `lines` lines."""
    journal = Journal(journal_place(folder), "main")
    written = count(1)
    with Path(diary).open("w", buffering=1) as file:

        def note(*words: object) -> None:
            file.write(" ".join(map(str, words)) + "\n")
            if next(written) == int(lines):
                say("ready")

        mine = journal.adopt([SAT], [SMALL])
        for number in count(int(first)):
            mine += [task for task in journal.open([opening(number)]) if isinstance(task, Task)]
            note("opened", *(task.task_id for task in mine))
            if number % 3:
                note("accepted", *journal.accept([sample(task) for task in mine], NOW))
                mine = []
            if number % 7 == 0 and (batch := journal.next_batch(4)) is not None:
                note("batch", batch.batch_id, *(s.task_id for s in batch.samples))
                if number % 2:
                    note("stored", batch.batch_id, *(s.task_id for s in batch.samples))
                    journal.batch_stored(batch.batch_id)


def main() -> None:
    say("up")
    roles = {"rival": rival, "visitor": visitor, "holder": holder, "victim": victim}
    for line in sys.stdin:
        role, *arguments = line.split()
        if role == "reap":
            os.waitpid(int(arguments[0]), 0)
            say("dead")
            continue
        if os.fork() == 0:
            say("pid", os.getpid())
            roles[role](*arguments)
            os._exit(0)


if __name__ == "__main__":
    main()
