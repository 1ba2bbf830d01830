"""Counters and status of an elastic service: frozen values for commands, pages and metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic.demand import Demand, Desired
from headgate.elastic.pool import ElasticPool
from headgate.elastic.worker import DrainStage, EngineLoad, Pin, Worker, WorkerState

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the buckets: from an answer out of the cache to the default `request_timeout`."""


@dataclass(slots=True)
class Spread:
    """A histogram of durations.

    Attributes:
        counts: durations per bucket, not cumulative; the last bucket has those above all bounds.
        total_s: sum of all durations.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker at one moment.

    Attributes:
        worker_id: its name.
        kind: kind of its engine, such as `sglang`.
        state: its state.
        stage: stage of its drain; None if it does not drain.
        since_s: how long it has been in that state.
        requests: open requests that the pool has given it.
        slots: most requests that it is given at once.
        share: how much of it is in use; 1 is full.
        load: the last reading of its engine; None before the first.
        read_s: how long ago that was; None before the first.
        pin: what an operator has decided for it; None if it follows the load.
        is_leased: whether it holds its lease.
        is_lease_lost: whether it must give its lease back because others need it.
        failures: failures in a row.
        retry_s: seconds until a failed worker is tried again; None if it has not failed.
        last_error: the message of its last failure; empty if there was none.
    """

    worker_id: str
    kind: str
    state: WorkerState
    stage: DrainStage | None
    since_s: float
    requests: int
    slots: int
    share: float
    load: EngineLoad | None
    read_s: float | None
    pin: Pin | None
    is_leased: bool
    is_lease_lost: bool
    failures: int
    retry_s: float | None
    last_error: str


@dataclass(slots=True)
class Counts:
    """What has happened since the service began.

    Attributes:
        arrived: requests that were accepted.
        served: requests that were answered to the end.
        lost: requests that could not be answered, whose clients got an error.
        refused: requests that were not accepted.
        withdrawn: requests whose clients did not wait for the answer.
        handed_over: times that a request was handed over from one worker to another.
        failures: worker -> times that it failed.
        scaled_up: decisions for more workers.
        scaled_down: decisions for fewer workers.
        awake_s: worker-seconds awake, including starting and draining.
    """

    arrived: int = 0
    served: int = 0
    lost: int = 0
    refused: int = 0
    withdrawn: int = 0
    handed_over: int = 0
    failures: dict[str, int] = field(default_factory=Counter)
    scaled_up: int = 0
    scaled_down: int = 0
    awake_s: float = 0.0


@dataclass(slots=True)
class Times:
    """How long things took since the service began, in seconds.

    Attributes:
        wait: from a request's arrival until it was given to the worker that answered it.
        first_byte: from a request's arrival until its answer could begin to be sent to the client.
        answer: from a request's arrival until its answer had been sent to the client.
        start: from a worker's lease until it took requests.
        drain: from the decision to drain a worker until it was asleep.
    """

    wait: Spread = field(default_factory=Spread)
    first_byte: Spread = field(default_factory=Spread)
    answer: Spread = field(default_factory=Spread)
    start: Spread = field(default_factory=Spread)
    drain: Spread = field(default_factory=Spread)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool at one moment. Queue length, oldest wait, start time and more are in `demand`.

    Attributes:
        name: name of the pool.
        policy: the policy that decides how many workers are awake.
        is_open: whether it accepts requests.
        is_elastic: whether it follows the load; otherwise workers stay as they are.
        models: models that its engines serve.
        workers: its workers, in the order in which they were given.
        demand: running and waiting work, and the capacity for it.
        desired: how many workers should be awake, and why.
        counts: counters since the service began.
        times: how long things took.
    """

    name: str
    policy: str
    is_open: bool
    is_elastic: bool
    models: tuple[str, ...]
    workers: tuple[WorkerView, ...]
    demand: Demand
    desired: Desired
    counts: Counts
    times: Times

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self.demand.waiting

    @property
    def running(self) -> int:
        """Requests at workers."""
        return self.demand.running

    def count(self, state: WorkerState) -> int:
        """Return how many workers are in a state."""
        return sum(worker.state is state for worker in self.workers)

    def worker(self, worker_id: str) -> WorkerView | None:
        """Return a worker by its name."""
        return next((worker for worker in self.workers if worker.worker_id == worker_id), None)


AWAKE: Final = frozenset({WorkerState.STARTING, WorkerState.ACTIVE, WorkerState.DRAINING})
"""States in which a worker holds its memory, once it has its lease."""


class ServiceCounts:
    """Counts requests, hand-overs, failures and scale decisions, and how long things take. Owned by one service."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.times = Times()

    def take(self, event: Event) -> None:
        """Count an event of the pool."""
        counts, times = self.counts, self.times
        if isinstance(event, events.WorkerChanged) and event.before in AWAKE:
            # A start that is forgone was still waiting for its lease.
            counts.awake_s += event.took_s * ((event.before, event.after) != ("starting", "inactive"))
        match event:
            case events.RequestLost():
                counts.lost += 1
            case events.RequestHandedOver():
                counts.handed_over += 1
            case events.ScaleDecided():
                counts.scaled_up += event.workers > event.before
                counts.scaled_down += event.workers < event.before
            case events.WorkerChanged(after=WorkerState.FAILED):
                counts.failures[event.worker] += 1
            case events.WorkerChanged(before=WorkerState.STARTING, after=WorkerState.ACTIVE):
                times.start.add(event.took_s)
            case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.INACTIVE):
                times.drain.add(event.took_s)
            case _:
                pass


def view_of(worker: Worker, kind: str, now: float) -> WorkerView:
    """Return a worker's status."""
    return WorkerView(
        worker_id=worker.worker_id,
        kind=kind,
        state=worker.state,
        stage=worker.stage,
        since_s=now - worker.since,
        requests=len(worker.requests),
        slots=worker.slots,
        share=worker.share,
        load=worker.load,
        read_s=None if worker.load is None else now - worker.read_at,
        pin=worker.pin,
        is_leased=worker.is_leased,
        is_lease_lost=worker.is_lease_lost,
        failures=worker.failures,
        retry_s=max(0.0, worker.retry_at - now) if worker.state is WorkerState.FAILED else None,
        last_error=worker.last_error,
    )


def status_of(
    pool: ElasticPool,
    counts: ServiceCounts,
    now: float,
    *,
    name: str,
    policy: str,
    is_open: bool,
    models: tuple[str, ...],
    kinds: Mapping[str, str],
) -> PoolStatus:
    """Return a pool's status; `kinds` has the kind of each worker's engine."""
    awake = (worker for worker in pool.workers.values() if worker.state in AWAKE and worker.is_leased)
    awake_s = sum(now - worker.since for worker in awake)
    return PoolStatus(
        name=name,
        policy=policy,
        is_open=is_open,
        is_elastic=pool.config.enable_elastic,
        models=models,
        workers=tuple(view_of(worker, kinds[worker.worker_id], now) for worker in pool.workers.values()),
        demand=pool.demand(now),
        desired=pool.desired,
        counts=replace(counts.counts, failures=dict(counts.counts.failures), awake_s=counts.counts.awake_s + awake_s),
        times=deepcopy(counts.times),
    )
