"""A process that forks writers to be killed: importing the libraries once makes many kills cheap.

Reads lines `FIRST` from stdin. For each it forks a writer, which stores batches FIRST, FIRST + 1, … into the folder and
says `done NUMBER` after each; this process says `pid PID` before and `gone` after it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis  # noqa: F401 - pandera does at the first batch, each writer anew

from headgate.core import Sample
from headgate.storage.batches import put_batch
from headgate.storage.objects import FolderObjects
from tests.storage.samples import DAY, START, sample

ROWS = 40


def batch(number: int) -> list[Sample]:
    """Return the samples of a batch: four environments, two days."""
    return [
        sample(ROWS * number + n, environment=f"e:{n % 4}", at=START + n // 4 % 2 * DAY + number) for n in range(ROWS)
    ]


def write(root: Path, first: int) -> None:
    """Store batches without end."""
    objects = FolderObjects(root)
    number = first
    while True:
        stored = put_batch(objects, f"b{number:04d}", batch(number))
        assert stored.rows == ROWS
        print(f"done {number}", flush=True)
        number += 1


def main() -> None:
    """Fork a writer for every line of stdin."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                write(Path(sys.argv[1]), int(line))
            finally:
                os._exit(1)
        print(f"pid {pid}", flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
