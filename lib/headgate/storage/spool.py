"""The spool of a journal: samples that are accepted and not yet visible in the store."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import orjson

from headgate.core import BatchId, HolderId, Sample, masked
from headgate.durable.sqlite import DamagedRowError
from headgate.storage.journal_database import JournalDatabase


@dataclass(frozen=True, slots=True)
class SpoolState:
    """This holder's spool: rows, when the oldest row without a batch was accepted, and rows assigned to a batch."""

    rows: int
    oldest_at: float | None
    assigned: int


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Rows that are stored together under one id; the same id always names the same rows."""

    batch_id: BatchId
    samples: tuple[Sample, ...]


_LARGEST_CHUNK: Final = 256
"""Maximum samples in one row; small compared with a batch, which consists of whole chunks."""

_CHUNK_CHARS: Final = 4_000_000
"""Maximum characters of the conversations in one row with several samples."""

LARGEST_BATCH_BYTES: Final = 32_000_000
"""Maximum serialised size of a batch of several rows; it takes about ten times as much memory while it is stored."""

_SAMPLE_FIELDS: Final = frozenset(field.name for field in fields(Sample))


_MOST_BYTES: Final = 32_000_000
"""Maximum serialised size of cached chunks: a usual batch need not be read back, and a long spool fits in memory."""


class RecentChunks:
    """Caches the latest chunks of samples up to a size, evicting the oldest. Owned by a spool."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[int, tuple[Sequence[Sample], int]] = OrderedDict()
        self._bytes = 0

    def add(self, position: int, samples: Sequence[Sample], size: int) -> None:
        """Cache a chunk of `size` bytes on disk, replacing one with the same position."""
        self.take(position)
        self._chunks[position] = samples, size
        self._bytes += size
        while self._bytes > _MOST_BYTES:
            _, (_, gone) = self._chunks.popitem(last=False)
            self._bytes -= gone

    def take(self, position: int) -> Sequence[Sample] | None:
        """Remove and return a chunk; None if it is not cached."""
        samples, size = self._chunks.pop(position, (None, 0))
        self._bytes -= size
        return samples


def without_secrets(sample: Sample) -> Sample:
    """Return a sample with this process's secrets masked; the same object if it has none, as nearly always."""
    conversation, why, error = masked(sample.conversation), masked(sample.why), sample.error and masked(sample.error)
    if conversation is sample.conversation and why is sample.why and error is sample.error:
        return sample
    return replace(sample, conversation=conversation, why=why, error=error)


class Spool:
    """Holds chunks of samples: one row per write, not per sample. Owned by a journal, used inside its transactions.

    A chunk belongs to a holder, and to a batch once it is passed to the store. Its samples are in a separate row, so
    that the rows for counting and assigning are small however large the samples are.
    """

    def __init__(self, db: JournalDatabase, holder: HolderId) -> None:
        self._db = db
        self._holder = holder
        self._recent = RecentChunks()

    def add(self, samples: Sequence[Sample], now: float) -> None:
        """Add samples, accepted at `now` (wall time in seconds)."""
        for chunk in _chunks(samples):
            written = orjson.dumps(chunk)
            self._recent.add(self._add_chunk(written, len(chunk), now), chunk, len(written))

    def state(self) -> SpoolState:
        """Return the state of this holder's spool."""
        rows, oldest, assigned = self._db.run("spool_state", (self._holder,)).fetchone()
        return SpoolState(rows, oldest, assigned)

    def count(self) -> int:
        """Return the number of spooled samples of all holders."""
        return int(self._db.run("spool_count").fetchone()[0])

    def assign(self, at_most: int) -> BatchId | None:
        """Return the id of an unconfirmed batch, else of a new one of the oldest chunks; None when there is none."""
        row = self._db.run("assigned_batch", (self._holder,)).fetchone()
        if row is not None:
            return BatchId(row[0])
        taken: list[int] = []
        room, room_bytes = at_most, LARGEST_BATCH_BYTES
        too_large: tuple[int, float] | None = None
        for position, rows, accepted_at, size in self._db.run("free_chunks", (self._holder,)):
            if rows > room:
                too_large = position, accepted_at
                break
            if taken and size > room_bytes:
                break
            taken.append(position)
            room, room_bytes = room - rows, room_bytes - size
        if not taken:
            if too_large is None:
                return None
            taken.append(self._split(too_large[0], at_most, too_large[1]))
        batch_id = BatchId(f"b-{uuid.uuid4().hex}")
        self._db.many("assign_chunk", [(batch_id, position) for position in taken])
        return batch_id

    def batch(self, batch_id: BatchId) -> SpooledBatch:
        """Return the rows of a batch."""
        positions = self._db.run("batch_positions", (batch_id,)).fetchall()
        return SpooledBatch(batch_id, tuple(sample for (position,) in positions for sample in self._chunk(position)))

    def remove(self, batch_id: BatchId) -> None:
        """Remove a batch that the store has."""
        self._db.run("remove_batch_samples", (batch_id,))
        self._db.run("remove_batch", (batch_id,))

    def samples(self) -> list[Sample]:
        """Return all holders' spooled samples in the order in which they were accepted."""
        return [sample for (chunk,) in self._db.run("all_chunks") for sample in _samples(chunk)]

    def forget(self) -> None:
        """Drop the cache after a rollback."""
        self._recent = RecentChunks()

    def _chunk(self, position: int) -> Sequence[Sample]:
        known = self._recent.take(position)
        return _samples(self._written(position)) if known is None else known

    def _written(self, position: int) -> bytes:
        found: tuple[bytes] | None = self._db.run("chunk_samples", (position,)).fetchone()
        if found is None:
            raise DamagedRowError(f"the samples of row {position} of the spool are gone")
        return found[0]

    def _add_chunk(self, chunk: bytes, rows: int, accepted_at: float) -> int:
        ((position,),) = self._db.each("add_chunk", [(self._holder, rows, accepted_at)])
        self._db.run("add_chunk_samples", (position, chunk))
        return int(position)

    def _split(self, position: int, rows: int, accepted_at: float) -> int:
        """Move the first `rows` samples of a chunk into a new chunk, and return its position."""
        samples = _loaded(self._written(position))
        self._recent.take(position)
        self._db.run("shorten_chunk", (len(samples) - rows, position))
        self._db.run("replace_chunk_samples", (orjson.dumps(samples[rows:]), position))
        return self._add_chunk(orjson.dumps(samples[:rows]), rows, accepted_at)


def _chunks(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    chunk: list[Sample] = []
    chars = 0
    for sample in map(without_secrets, samples):
        if chunk and (len(chunk) == _LARGEST_CHUNK or chars + len(sample.conversation) > _CHUNK_CHARS):
            yield chunk
            chunk, chars = [], 0
        chunk.append(sample)
        chars += len(sample.conversation)
    if chunk:
        yield chunk


def _loaded(chunk: bytes) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = orjson.loads(chunk)
    except ValueError as error:
        raise DamagedRowError(f"samples of the spool cannot be read: {error}") from error
    return rows


def is_readable(chunk: bytes) -> bool:
    """Return whether the samples of a chunk can be read."""
    try:
        _samples(chunk)
    except DamagedRowError:
        return False
    return True


def _samples(chunk: bytes) -> list[Sample]:
    rows = _loaded(chunk)
    try:
        if rows and rows[0].keys() <= _SAMPLE_FIELDS:
            return [Sample(**row) for row in rows]
        # A later version wrote fields that this one does not know.
        return [Sample(**{name: value for name, value in row.items() if name in _SAMPLE_FIELDS}) for row in rows]
    except (TypeError, AttributeError) as error:
        raise DamagedRowError(f"samples of the spool cannot be read: {error}") from error
