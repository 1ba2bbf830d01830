"""Kills a writer at random points, and checks afterwards what it had promised."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import polars as pl

from headgate.core import Sample, Task, new_trace_id
from headgate.core.errors import HeadgateError
from headgate.storage import Journal, Opening, SampleStore, open_store
from headgate_bench.store_speed import example_samples

CAMPAIGN: Final = "bench-store"
MODEL: Final = "bench/writer@main"
_START_S: Final = 60.0
_EPOCH: Final = 1_767_225_600.0
_EXAMPLE: Final = example_samples(1, 1)[0]


@dataclass(frozen=True, slots=True)
class Writer:
    """Parameters of one life of the writer."""

    folder: Path  # folder of journal and store, shared by all lives
    environments: int  # number of environments over which samples are spread
    accept_rows: int  # samples per acceptance
    batch_rows: int  # samples per stored batch

    def journal(self) -> Journal:
        """Return the journal, opened in this process."""
        return Journal(self.folder / "journal", CAMPAIGN)

    def store(self) -> SampleStore:
        """Return the sample store."""
        return open_store(str(self.folder / "samples"))

    def names(self) -> list[str]:
        """Return the names of the environments."""
        return [f"bench:free-{number:02d}" for number in range(self.environments)]


def sample_of(task: Task) -> Sample:
    """Return a generated sample of a task."""
    return replace(
        _EXAMPLE,
        **{name: getattr(task, name) for name in ("task_id", "campaign", "model", "environment", "sequence", "index")},
        seed=task.seed,
        started_at=task.due_at,
        finished_at=task.due_at + 1.0,
        trace_id=new_trace_id(),
        conversation="[]",
    )


async def _write(writer: Writer) -> None:
    """Work until killed. A line is printed only after what it reports has been confirmed.

    Lines are `ready`, `accepted` with task ids, or `stored` with a batch id.
    """
    _say("ready")
    journal, store = writer.journal(), writer.store()
    names = writer.names()
    tasks = journal.adopt(names, [MODEL])
    at = _EPOCH
    while True:
        wanted = [Opening(MODEL, names[n % len(names)], at, 0.0, 1_000) for n in range(writer.accept_rows)]
        tasks += [opened for opened in journal.open(wanted) if isinstance(opened, Task)]
        accepted = journal.accept([sample_of(task) for task in tasks], at)
        _say(f"accepted {' '.join(sorted(accepted))}")
        tasks = []
        at += 1.0
        while journal.spool_state().rows >= writer.batch_rows:
            await store_one(journal, store, writer.batch_rows, lambda batch_id: _say(f"stored {batch_id}"))


async def store_one(
    journal: Journal, store: SampleStore, rows: int, told: Callable[[str], None] = lambda _batch_id: None
) -> bool:
    """Store one batch of the spool, as the sink does; return whether there was one.

    `told` gets the batch's id as soon as the store has confirmed it, before the spool forgets it.
    """
    batch = journal.next_batch(rows)
    if batch is None:
        return False
    await store.put_batch(batch.batch_id, batch.samples)
    told(batch.batch_id)
    journal.batch_stored(batch.batch_id)
    return True


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


class WriterFailedError(HeadgateError):
    """The writer of a benchmark exited by itself before it was killed."""

    code = "bench_writer_failed"
    next_step = "Its messages are on standard error; run the benchmark again."


@dataclass(slots=True)
class Promises:
    """What was confirmed to the writer as safe, over all its lives."""

    accepted: set[str] = field(default_factory=set)  # ids of samples that the journal accepted
    stored: set[str] = field(default_factory=set)  # ids of batches that the store confirmed
    kills: int = 0  # number of kills

    def take(self, output: bytes) -> None:
        """Read the output of one life; an incomplete last line does not count."""
        for line in output.decode("ascii").split("\n")[:-1]:
            word, *ids = line.split(" ")
            if word == "accepted":
                self.accepted.update(filter(None, ids))
            elif word == "stored":
                self.stored.update(ids)


@dataclass(frozen=True, slots=True)
class Toll:
    """How many promises were kept."""

    kills: int  # number of kills of the writer
    accepted: int  # samples confirmed as safe in the journal
    stored: int  # batches confirmed as safe in the store
    lost_samples: int  # accepted samples that are in neither
    lost_batches: int  # stored batches that are not visible
    doubled: int  # rows in the store beyond one per task
    rows: int  # rows in the store


def killed(writer: Writer, promises: Promises, *, longest_s: float, rng: random.Random) -> None:
    """Start the writer, kill -9 it at a random moment, and record what was confirmed to it.

    Half of the kills, chosen at random, come within `longest_s` of the start, while it takes over the previous life's
    work; the others come within `longest_s` of its first acceptance.

    Raises:
        WriterFailedError: if it exited before.
    """
    arguments = [str(writer.folder), str(writer.environments), str(writer.accept_rows), str(writer.batch_rows)]
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", __name__, *arguments], stdout=subprocess.PIPE, bufsize=0
    )
    with process:
        try:
            assert process.stdout is not None, "a pipe was asked for"
            said = _line(process.stdout)
            if rng.random() < 0.5:
                said += _line(process.stdout)
            try:
                rest, _ = process.communicate(timeout=rng.uniform(0.0, longest_s))
            except subprocess.TimeoutExpired:
                process.kill()
                rest, _ = process.communicate(timeout=_START_S)
            else:
                raise WriterFailedError(f"the writer exited by itself with status {process.returncode}")
        finally:
            process.kill()
    promises.take(said + rest)
    promises.kills += 1


def _line(output: IO[bytes]) -> bytes:
    line = output.readline()
    if not line:
        raise WriterFailedError("the writer exited before it had written anything")
    return line


def toll(writer: Writer, promises: Promises) -> Toll:
    """Store what is left in the journal, then count what is in the store by reading the Parquet files themselves."""
    return asyncio.run(_toll(writer, promises))


async def _toll(writer: Writer, promises: Promises) -> Toll:
    store, journal = writer.store(), writer.journal()
    try:
        seen = set((await store.visible()).manifests)
        journal.adopt(writer.names(), [MODEL])
        while await store_one(journal, store, writer.batch_rows):
            pass
        parts = (await store.visible()).parts
    finally:
        journal.close()
        store.close()
    rows: Counter[str] = Counter()
    for part in parts:
        rows.update(pl.read_parquet(writer.folder / "samples" / part.path, columns=["task_id"])["task_id"])
    return Toll(
        kills=promises.kills,
        accepted=len(promises.accepted),
        stored=len(promises.stored),
        lost_samples=len(promises.accepted - set(rows)),
        lost_batches=len(promises.stored - seen),
        doubled=rows.total() - len(rows),
        rows=rows.total(),
    )


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    asyncio.run(_write(Writer(Path(folder), *map(int, numbers))))
