"""How a pool looks from outside."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.elastic.pool import ElasticPool
from headgate.elastic.service.status import PoolStatus, WorkerView
from headgate.elastic.service.tally import AWAKE, Tally
from headgate.elastic.worker import Worker, WorkerState


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
