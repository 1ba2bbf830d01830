"""Events of a training whose checkpoints are followed."""

from __future__ import annotations

from logging import WARNING

from headgate.core.events.event import Event


class CheckpointFound(Event):
    """A checkpoint is whole, and is evaluated next."""

    model: str
    step: int
    path: str
    size_bytes: int


class CheckpointsSkipped(Event):
    """Older checkpoints are left out: only the newest are evaluated."""

    place: str
    skipped: int
    newest: int


class CheckpointsUnread(Event, log_level=WARNING):
    """The folder or bucket of checkpoints cannot be read now; it is looked at again."""

    place: str
    error: str


class CheckpointScored(Event):
    """A checkpoint was evaluated; `difference` is from the best one before it, None where it was not compared."""

    model: str
    step: int
    mean: float
    low: float
    high: float
    scored: int
    samples: int
    against: str
    difference: float | None
    difference_low: float | None
    difference_high: float | None


class CheckpointRegressed(Event, log_level=WARNING):
    """A checkpoint is worse than the best one before it: the interval of the paired difference lies below zero."""

    model: str
    step: int
    against: str
    difference: float
    difference_low: float
    difference_high: float


class CheckpointFailed(Event, log_level=WARNING):
    """A checkpoint has no score: its engine did not start, or none of its samples could be scored."""

    model: str
    step: int
    path: str
    error: str
