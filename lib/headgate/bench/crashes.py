"""Killing a writer at random points, and counting what it had promised afterwards."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Final

import polars as pl

from headgate.bench.crash_writer import MODEL, Writer, store_one
from headgate.core.errors import HeadgateError

_START_S: Final = 60.0


class WriterFailedError(HeadgateError):
    """The writer of a benchmark ended by itself, though it was to be killed."""

    code = "bench_writer_failed"
    next_step = "Its own messages are on standard error; run the benchmark again."


@dataclass(slots=True)
class Promises:
    """What the writer was told is safe, over all its lives.

    Attributes:
        accepted: ids of samples that the journal accepted.
        stored: ids of batches that the store confirmed.
        kills: lives that were ended.
    """

    accepted: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    kills: int = 0

    def take(self, output: bytes) -> None:
        """Read what one life said; a line without an end was never said."""
        for line in output.decode("ascii").split("\n")[:-1]:
            word, *ids = line.split(" ")
            if word == "accepted":
                self.accepted.update(filter(None, ids))
            elif word == "stored":
                self.stored.update(ids)


@dataclass(frozen=True, slots=True)
class Toll:
    """What became of the promises.

    Attributes:
        kills: of the writer.
        accepted: samples that were promised to be safe in the journal.
        stored: batches that were promised to be safe in the store.
        lost_samples: of those, the ones that are in neither.
        lost_batches: of those, the ones that cannot be seen.
        doubled: rows in the store beyond one per task.
        rows: in the store.
    """

    kills: int
    accepted: int
    stored: int
    lost_samples: int
    lost_batches: int
    doubled: int
    rows: int


def killed(writer: Writer, promises: Promises, *, longest_s: float, rng: random.Random) -> None:
    """Start the writer, kill -9 it at a random moment, and take note of what it was promised.

    Every other kill, by chance, comes within `longest_s` of the start, when it takes over what the former life left;
    the rest come within `longest_s` of its first acceptance.

    Raises:
        WriterFailedError: if it ended before.
    """
    arguments = [str(writer.folder), str(writer.environments), str(writer.accept_rows), str(writer.batch_rows)]
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "headgate.bench.crash_writer", *arguments], stdout=subprocess.PIPE, bufsize=0
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
                raise WriterFailedError(f"the writer ended by itself with status {process.returncode}")
        finally:
            process.kill()
    promises.take(said + rest)
    promises.kills += 1


def _line(output: IO[bytes]) -> bytes:
    line = output.readline()
    if not line:
        raise WriterFailedError("the writer ended before it had written anything")
    return line


def toll(writer: Writer, promises: Promises) -> Toll:
    """Let a last holder store what is left, and count what is there; reads the Parquet files themselves."""
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
