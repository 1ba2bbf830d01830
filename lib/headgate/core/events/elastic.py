"""Events of an elastic pool: its workers, and requests that move between them."""

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
    """A worker failed; its requests go to others, and it is tried again in `retry_s`."""

    pool: str
    worker: str
    reason: str
    retry_s: float


class RequestHandedOver(Event):
    """A request was taken from a draining or failed worker, and is back in the queue at its old place."""

    pool: str
    request: str
    worker: str
    reason: str


class RequestLost(Event):
    """A request could not be answered, and its client got an error."""

    pool: str
    request: str
    code: str
    reason: str


class CountsDiffer(Event):
    """An engine serves others besides this pool: it counts more requests than the pool has sent there."""

    pool: str
    worker: str
    sent: int
    counted: int


class PoolNotOpened(Event, log_level=WARNING):
    """There is no place to run the engines of a model that Headgate serves; tried again in `retry_s`."""

    pool: str
    reason: str
    next_step: str
    retry_s: float


class PoolSteered(Event):
    """An operator took control of a pool's size or of a worker, or returned it; `what` says which."""

    pool: str
    what: str
