"""What an elastic service counts and shows of itself: frozen values for commands, pages and metrics."""

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
"""Upper bounds of the buckets; from an answer out of the cache to the longest `request_timeout` by default."""


@dataclass(slots=True)
class Spread:
    """How many durations lie under which bound.

    Attributes:
        counts: durations per bucket, not cumulated; the last one has what lies above all bounds.
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
        kind: of its engine, such as `sglang`.
        state: where it stands.
        stage: how far a drain has come; None when it does not drain.
        since_s: how long it has been in that state.
        requests: that the pool has given it and that have not ended.
        slots: requests that it is given at most at once.
        share: how much of it is in use; 1 is full.
        load: the last reading of its engine; None before the first.
        read_s: how long ago that was; None before the first.
        pin: what an operator has decided for it; None when it follows the load.
        is_leased: it holds what it stands on.
        is_lease_lost: what it stands on is wanted by somebody else.
        failures: failures in a row.
        retry_s: when a failed worker is tried again, from now; None when it has not failed.
        last_error: the last sentence that went with a failure; empty when nothing failed.
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
        lost: requests that could not be answered, whose clients were told so.
        refused: requests that were not accepted.
        withdrawn: requests whose clients did not wait for the answer.
        handed_over: times that a request was taken from one worker for another.
        failures: worker -> times that it failed.
        scaled_up: decisions for more workers.
        scaled_down: decisions for fewer.
        awake_s: worker-seconds awake, starting and draining included.
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
        wait: of a request, until it was given to the worker that answered it.
        first_byte: of a request, until its answer could begin to be sent to the client.
        answer: of a request, until its answer had been sent to the client.
        start: of a worker, from the decision to wake it until it took requests.
        drain: of a worker, from the decision to drain it until it slept.
    """

    wait: Spread = field(default_factory=Spread)
    first_byte: Spread = field(default_factory=Spread)
    answer: Spread = field(default_factory=Spread)
    start: Spread = field(default_factory=Spread)
    drain: Spread = field(default_factory=Spread)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool at one moment. Queue length, oldest wait, start time and more stand in `demand`.

    Attributes:
        name: of the pool.
        policy: that decides how many workers it has.
        is_open: it takes requests.
        is_elastic: it follows the load; otherwise workers stay as they are.
        models: that its engines serve.
        workers: in the order in which they were named.
        demand: what runs and waits, and what there is for it.
        desired: how many workers there should be, and why.
        counts: what has happened.
        times: how long it took.
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
        """Requests that wait in front of the workers."""
        return self.demand.waiting

    @property
    def running(self) -> int:
        """Requests that are with workers."""
        return self.demand.running

    def count(self, state: WorkerState) -> int:
        """Return how many workers are in a state."""
        return sum(worker.state is state for worker in self.workers)

    def worker(self, worker_id: str) -> WorkerView | None:
        """Return a worker by its name."""
        return next((worker for worker in self.workers if worker.worker_id == worker_id), None)


AWAKE: Final = frozenset({WorkerState.STARTING, WorkerState.ACTIVE, WorkerState.DRAINING})
"""States in which a worker holds its memory."""


class ServiceCounts:
    """Counts requests, hand-overs, failures and scale decisions, and how long things take. Owned by one service."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.times = Times()

    def take(self, event: Event) -> None:
        """Count an event of the pool."""
        counts, times = self.counts, self.times
        if isinstance(event, events.WorkerChanged) and event.before in AWAKE:
            counts.awake_s += event.took_s
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
    """Return where a worker stands."""
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
    """Return where a pool stands; `kinds` has the kind of each worker's engine."""
    awake_s = sum(now - worker.since for worker in pool.workers.values() if worker.state in AWAKE)
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
