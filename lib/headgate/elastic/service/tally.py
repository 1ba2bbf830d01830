"""What has happened since a service began, counted as it happens, and how its pool looks from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic.pool import ElasticPool
from headgate.elastic.service.status import Counts, PoolStatus, Tallied, Times, WorkerView
from headgate.elastic.worker import Worker, WorkerState

AWAKE: Final = frozenset({WorkerState.STARTING, WorkerState.ACTIVE, WorkerState.DRAINING})
"""States in which a worker holds its memory."""


class Tally:
    """Counts requests, hand-overs, failures and scale decisions. Owned by one service."""

    def __init__(self) -> None:
        self.arrived = 0
        self.served = 0
        self.refused = 0
        self.withdrawn = 0
        self.wait = Tallied()
        self.first_byte = Tallied()
        self.answer = Tallied()
        self._lost = 0
        self._handed_over = 0
        self._scaled_up = 0
        self._scaled_down = 0
        self._failures: Counter[str] = Counter()
        self._awake_s = 0.0
        self._start = Tallied()
        self._drain = Tallied()

    def take(self, event: Event) -> None:
        """Count an event of the pool."""
        if isinstance(event, events.WorkerChanged) and event.before in AWAKE:
            self._awake_s += event.took_s
        match event:
            case events.RequestLost():
                self._lost += 1
            case events.RequestHandedOver():
                self._handed_over += 1
            case events.ScaleDecided():
                self._scaled_up += event.workers > event.before
                self._scaled_down += event.workers < event.before
            case events.WorkerChanged(after=WorkerState.FAILED):
                self._failures[event.worker] += 1
            case events.WorkerChanged(before=WorkerState.STARTING, after=WorkerState.ACTIVE):
                self._start.add(event.took_s)
            case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.INACTIVE):
                self._drain.add(event.took_s)
            case _:
                pass

    def lost(self) -> None:
        """Count a request that the pool was not asked about any more: the service ended before it was answered."""
        self._lost += 1

    def counts(self, awake_s: float) -> Counts:
        """Return the counts up to now; `awake_s` is how long workers have been in the states they are in now."""
        return Counts(
            arrived=self.arrived,
            served=self.served,
            lost=self._lost,
            refused=self.refused,
            withdrawn=self.withdrawn,
            handed_over=self._handed_over,
            failures=dict(self._failures),
            scaled_up=self._scaled_up,
            scaled_down=self._scaled_down,
            awake_s=self._awake_s + awake_s,
        )

    def times(self) -> Times:
        """Return how long things took up to now."""
        return Times(
            wait=self.wait.spread(),
            first_byte=self.first_byte.spread(),
            answer=self.answer.spread(),
            start=self._start.spread(),
            drain=self._drain.spread(),
        )


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
        is_lease_lost=worker.is_lease_lost,
        failures=worker.failures,
        retry_s=max(0.0, worker.retry_at - now) if worker.state is WorkerState.FAILED else None,
        last_error=worker.last_error,
    )


def status_of(
    pool: ElasticPool,
    tally: Tally,
    now: float,
    *,
    name: str,
    policy: str,
    is_open: bool,
    models: tuple[str, ...],
    kinds: Mapping[str, str],
) -> PoolStatus:
    """Return where a pool stands; `kinds` has the kind of each worker's engine."""
    return PoolStatus(
        name=name,
        policy=policy,
        is_open=is_open,
        is_elastic=pool.config.enable_elastic,
        models=models,
        workers=tuple(view_of(worker, kinds[worker.worker_id], now) for worker in pool.workers.values()),
        demand=pool.demand(now),
        desired=pool.desired,
        counts=tally.counts(sum(now - worker.since for worker in pool.workers.values() if worker.state in AWAKE)),
        times=tally.times(),
    )
