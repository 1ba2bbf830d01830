"""The spool of a journal: samples that are accepted and not yet visible in the store."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import orjson

from headgate.core import BatchId, HolderId, Sample
from headgate.storage.journal_records import SpooledBatch, SpoolState
from headgate.storage.recent_chunks import RecentChunks
from headgate.storage.statements import statements

_LARGEST_CHUNK: Final = 256
"""Samples in one row at most: a batch is made of whole chunks, so they are small beside it."""

_SAMPLE_FIELDS: Final = frozenset(field.name for field in fields(Sample))


class Spool:
    """Holds chunks of samples: one row per write, not per sample. Owned by a journal, used inside of its transactions.

    A chunk belongs to a holder, and to a batch once it was handed to the store. Its samples lie in a row of their own,
    so that what is counted and assigned is small however large the samples are.
    """

    def __init__(self, db: sqlite3.Connection, holder: HolderId) -> None:
        self._db = db
        self._holder = holder
        self._sql = statements()
        self._recent = RecentChunks()

    def add(self, samples: Sequence[Sample], now: float) -> None:
        """Keep samples, accepted at `now` (wall seconds)."""
        for start in range(0, len(samples), _LARGEST_CHUNK):
            chunk = samples[start : start + _LARGEST_CHUNK]
            written = orjson.dumps(chunk)
            self._recent.add(self._add_chunk(written, len(chunk), now), chunk, len(written))

    def state(self) -> SpoolState:
        """Return the state of this holder's spool."""
        rows, oldest, assigned = self._db.execute(self._sql["spool_state"], (self._holder,)).fetchone()
        return SpoolState(rows, oldest, assigned)

    def count(self) -> int:
        """Return how many samples are spooled, of all holders."""
        return int(self._db.execute(self._sql["spool_count"]).fetchone()[0])

    def assign(self, at_most: int) -> BatchId | None:
        """Return the id of an unconfirmed batch, else make one of the oldest chunks; None when there is none."""
        row = self._db.execute(self._sql["assigned_batch"], (self._holder,)).fetchone()
        if row is not None:
            return BatchId(row[0])
        taken: list[int] = []
        room = at_most
        too_large: tuple[int, float] | None = None
        for position, rows, accepted_at in self._db.execute(self._sql["free_chunks"], (self._holder,)):
            if rows > room:
                too_large = position, accepted_at
                break
            taken.append(position)
            room -= rows
        if not taken:
            if too_large is None:
                return None
            taken.append(self._split(too_large[0], at_most, too_large[1]))
        batch_id = BatchId(f"b-{uuid.uuid4().hex}")
        self._db.executemany(self._sql["assign_chunk"], [(batch_id, position) for position in taken])
        return batch_id

    def batch(self, batch_id: BatchId) -> SpooledBatch:
        """Return the rows of a batch."""
        positions = self._db.execute(self._sql["batch_positions"], (batch_id,)).fetchall()
        return SpooledBatch(batch_id, tuple(sample for (position,) in positions for sample in self._chunk(position)))

    def remove(self, batch_id: BatchId) -> None:
        """Forget a batch that the store has."""
        self._db.execute(self._sql["remove_batch_samples"], (batch_id,))
        self._db.execute(self._sql["remove_batch"], (batch_id,))

    def samples(self) -> list[Sample]:
        """Return every spooled sample, of all holders, in the order in which they were accepted."""
        return [sample for (chunk,) in self._db.execute(self._sql["all_chunks"]) for sample in _samples(chunk)]

    def forget(self) -> None:
        """Forget what is kept in memory: a write of it was undone."""
        self._recent = RecentChunks()

    def _chunk(self, position: int) -> Sequence[Sample]:
        known = self._recent.take(position)
        if known is not None:
            return known
        (chunk,) = self._db.execute(self._sql["chunk_samples"], (position,)).fetchone()
        return _samples(chunk)

    def _add_chunk(self, chunk: bytes, rows: int, accepted_at: float) -> int:
        position = self._db.execute(self._sql["add_chunk"], (self._holder, rows, accepted_at)).lastrowid
        assert position is not None, "an insert has a row id"
        self._db.execute(self._sql["add_chunk_samples"], (position, chunk))
        return position

    def _split(self, position: int, rows: int, accepted_at: float) -> int:
        """Move the first `rows` samples of a chunk into one of their own, and return where that is."""
        (chunk,) = self._db.execute(self._sql["chunk_samples"], (position,)).fetchone()
        samples = orjson.loads(chunk)
        self._recent.take(position)
        self._db.execute(self._sql["shorten_chunk"], (len(samples) - rows, position))
        self._db.execute(self._sql["replace_chunk_samples"], (orjson.dumps(samples[rows:]), position))
        return self._add_chunk(orjson.dumps(samples[:rows]), rows, accepted_at)


def _samples(chunk: bytes) -> list[Sample]:
    rows: list[dict[str, Any]] = orjson.loads(chunk)
    if rows and rows[0].keys() <= _SAMPLE_FIELDS:
        return [Sample(**row) for row in rows]
    # A later version wrote fields that this one does not know.
    return [Sample(**{name: value for name, value in row.items() if name in _SAMPLE_FIELDS}) for row in rows]
