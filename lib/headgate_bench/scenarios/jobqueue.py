"""P5: the job queue's rates, pick-up and flat cost, busy policy servers, heartbeats, and the cost of kills."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from headgate_bench.definition import Bench, Outcome, Scenario
from headgate_bench.jobqueue.batches import batches
from headgate_bench.jobqueue.faults import faults
from headgate_bench.jobqueue.flat import flat
from headgate_bench.jobqueue.heartbeats import heartbeats
from headgate_bench.jobqueue.one_by_one import one_by_one
from headgate_bench.jobqueue.part import JobQueueParameters, Site
from headgate_bench.jobqueue.pickup import pickup
from headgate_bench.jobqueue.saturation import saturation
from headgate_bench.postgres import PrivatePostgres

_MEASURES: Final[dict[str, Callable[[Site, Callable[[float], None]], Outcome]]] = {
    "postgres": batches,
    "http": one_by_one,
    "pickup": pickup,
    "flat": flat,
    "saturation": saturation,
    "heartbeats": heartbeats,
    "faults": faults,
}


def measure(parameters: JobQueueParameters, bench: Bench) -> Outcome:
    """Return the figures of the chosen parts."""
    parameters.check()
    found = Outcome()
    bench.progress(0.0, "starting PostgreSQL" if parameters.needs_postgres else "starting")
    with PrivatePostgres() if parameters.needs_postgres else nullcontext() as postgres:
        site = Site(parameters, bench.seed, bench.folder, postgres)
        for number, name in enumerate(parameters.chosen):
            begun = time.perf_counter()
            found.add(_MEASURES[name](site, partial(_tell, bench, parameters.chosen, number)))
            found.samples.append({"part": name, "took_s": time.perf_counter() - begun})
    return found


def _tell(bench: Bench, parts: Sequence[str], number: int, share: float) -> None:
    bench.progress((number + share) / len(parts), parts[number])


SCENARIO = Scenario(
    name="jobqueue",
    quick=JobQueueParameters(),
    full=JobQueueParameters(
        iterations=5,
        jobs=50_000,
        rival_jobs=5,
        http_s=5.0,
        pickup_jobs=3_000,
        handovers=1_000,
        large=1_000_000,
        flat_rounds=30,
        saturation_hours=12.0,
        saturation_episodes=30,
        heartbeat_workers=10_000,
        heartbeat_lease_s=90.0,
        heartbeat_s=75.0,
        fault_jobs=1_500,
        worker_kills=15,
        server_kills=8,
    ),
    measure=measure,
)
