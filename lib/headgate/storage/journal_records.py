"""What goes into the journal and comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headgate.core import BatchId, Sample


@dataclass(frozen=True, slots=True)
class Opening:
    """A request to open one task.

    Attributes:
        due_at: when the task fell due; wall seconds.
        interval_s: spacing of dues; a due time less than half of it after the last one taken is the same due time.
        data_length: tasks of the environment, for the index.
        sequence: when the source of the task counts itself; None takes the next number.
        slot_at: for the first task of a pair, the due time that it takes in place of `due_at`.
    """

    model: str
    environment: str
    due_at: float
    interval_s: float
    data_length: int
    weight: float = 1.0
    sequence: int | None = None
    stage: str = "sample"
    slot_at: float | None = None


@dataclass(frozen=True, slots=True)
class AlreadyTaken:
    """Another process of this journal has taken the due time."""

    model: str
    environment: str
    last_due: float | None


@dataclass(frozen=True, slots=True)
class PairRecord:
    """One model in one environment: the next sequence number and the due time last taken."""

    model: str
    environment: str
    next_sequence: int
    last_due: float | None


@dataclass(frozen=True, slots=True)
class JournalHistory:
    """What a campaign needs of its past when a sampler starts.

    Attributes:
        pairs: by (model, environment).
        counts: scored samples of the last 24 h, as (time, samples) per minute.
        pauses: (level, paused until) by model.
    """

    pairs: Mapping[tuple[str, str], PairRecord]
    counts: Mapping[tuple[str, str], Sequence[tuple[float, int]]]
    pauses: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, slots=True)
class SpoolState:
    """This holder's spool: rows, when the oldest row without a batch was accepted, rows in a batch already."""

    rows: int
    oldest_at: float | None
    assigned: int


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Rows that are stored together under one id; the same id always names the same rows."""

    batch_id: BatchId
    samples: tuple[Sample, ...]


class TaskState(StrEnum):
    """Where the journal knows a task to be."""

    OPEN = "open"
    STARTED = "started"
    SPOOLED = "spooled"
    UNKNOWN = "unknown"
