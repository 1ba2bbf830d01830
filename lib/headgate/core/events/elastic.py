"""What happens in an elastic pool: to its workers, and to requests that change hands."""

from __future__ import annotations

from logging import WARNING

from headgate.core.events.event import Event


class ScaleDecided(Event):
    """A policy or an operator wants another number of workers."""

    pool: str
    workers: int
    before: int
    because: str


class WorkerChanged(Event):
    """A worker went from one state to another; `took_s` is how long it was in the former."""

    pool: str
    worker: str
    before: str
    after: str
    reason: str
    took_s: float


class WorkerFailed(Event):
    """A worker does not work; what it had goes to others, and it is tried again in `retry_s`."""

    pool: str
    worker: str
    reason: str
    retry_s: float


class RequestHandedOver(Event):
    """A request was taken from a worker that drains or failed, and stands in line again at its old place."""

    pool: str
    request: str
    worker: str
    reason: str


class RequestLost(Event):
    """A request could not be answered, and its client was told so."""

    pool: str
    request: str
    code: str
    reason: str


class CountsDiffer(Event):
    """An engine computes for others than this pool: it counts more than the pool has sent there."""

    pool: str
    worker: str
    sent: int
    counted: int


class PoolNotOpened(Event, log_level=WARNING):
    """The engines of a model that Headgate serves have no place where they could be; it is tried again in `retry_s`."""

    pool: str
    reason: str
    next_step: str
    retry_s: float


class PoolSteered(Event):
    """An operator took a pool's size or a worker in hand, or gave it back; `what` says which."""

    pool: str
    what: str
