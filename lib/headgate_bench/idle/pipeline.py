"""One run of a case: its tasks on Headgate's dispatch loop, its requests through request admission."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from headgate.core import HolderId, Task
from headgate.scheduling import (
    BoundedBorrow,
    Dispatcher,
    DispatchLoop,
    FrontierRules,
    StrictFair,
    TaskPolicy,
    Trace,
)
from headgate.simulation import LoopClock
from headgate_bench.idle.cases import Case
from headgate_bench.idle.facts import Recorder, Run, Step
from headgate_bench.idle.metrics import LOCAL, MODEL, SUBMISSION, metrics_of
from headgate_bench.idle.providers import Providers
from headgate_bench.idle.tasks import ARRIVAL, HEAVY, SEED, row_groups_of

_ROWS: Final = 8_192
"""Rows open at most, whatever their groups are (DataDesigner's rule)."""


async def run_case(case: Case, seed: int) -> Run:
    """Run a case once on the running loop, whose time may be virtual, and return what happened."""
    clock, rng = LoopClock(), random.Random(seed)
    recorder = Recorder(asyncio.get_running_loop().time)
    limits = {SUBMISSION: case.capacity, MODEL: case.model_capacity, LOCAL: case.capacity}
    dispatcher = Dispatcher(limits, holder=HolderId(f"idle-{seed}"), policy=_policy(case), is_roster_open=True)
    providers = Providers(case, clock, recorder)

    async def work(task: Task) -> None:
        recorder.tell(Step.WORKER, task.task_id)
        if task.stage in providers.slots:
            await providers.answer(task)
        elif (service_s := _service_s(case, task.stage)) > 0:
            await asyncio.sleep(service_s * (1 + case.spread * rng.uniform(-1, 1)) if case.spread else service_s)

    frontier = FrontierRules(cap=case.row_groups, is_adaptive=case.is_adaptive, max_rows=max(3 * case.buffer, _ROWS))
    loop = DispatchLoop(
        dispatcher,
        row_groups_of(case),
        work,
        clock=clock,
        frontier=frontier,
        model_resource=MODEL,
        trace=Trace(recorder.emit, recorder.wants),
    )
    async with providers.serving(loop):
        await loop.run()
    return Run(
        recorder.facts,
        limits,
        providers.slots,
        leases_left=len(dispatcher.book.live),
        requests_left=providers.in_flight(),
        waiters_left=providers.waiting(),
    )


def _policy(case: Case) -> TaskPolicy:
    if case.policy == "bounded_borrow":
        # A reserve of one's own is kept for a second after each arrival: peers arrive at once here.
        return BoundedBorrow() if case.reserve is None else BoundedBorrow(reserve_share=case.reserve, reserve_for_s=1.0)
    cap = 2 * case.group_weight
    return StrictFair(group_caps={MODEL: cap} if cap < case.model_capacity else {})


def _service_s(case: Case, stage: str) -> float:
    if stage == SEED:
        return 0.0
    if stage == ARRIVAL:
        return case.request_s
    return case.upstream_s if stage == HEAVY or stage.startswith("heavy_") else case.downstream_s


_SERVICE_S: Final = (0.0003, 0.001, 0.003, 0.006, 0.025, 0.05, 0.5)
_REPEATS: Final = 15


def granularity_s() -> dict[float, float]:
    """Return how long a sleep of each service time really takes here, as a median."""

    async def slept(seconds: float) -> float:
        times = []
        for _ in range(_REPEATS if seconds < 0.1 else 1):
            began = time.perf_counter()
            await asyncio.sleep(seconds)
            times.append(time.perf_counter() - began)
        return median(times)

    async def all_of_them() -> dict[float, float]:
        return {seconds: await slept(seconds) for seconds in _SERVICE_S}

    return asyncio.run(all_of_them())


def wall_ratios(case: Case, control: Case, seed: int, repeats: int) -> list[float]:
    """Return the wall time of a case over that of its control, by the wall clock; they take turns."""
    return [_wall_s(case, seed) / _wall_s(control, seed) for _ in range(repeats)]


def _wall_s(case: Case, seed: int) -> float:
    return asyncio.run(run_case(case, seed)).wall_s


def run_in_real_time(case: Case, seed: int, granularity: Mapping[float, float]) -> dict[str, Any]:
    """Return the figures of one run by the wall clock.

    `over_ideal_of_machine` holds the wall time to the ideal with every service time as long as a sleep takes here: what
    is left above 1 is the scheduler's and the machine's.
    """
    began = time.process_time()
    run = asyncio.run(run_case(case, seed))
    cpu_s = time.process_time() - began
    figures = metrics_of(case, run)
    ideal_s = replace(
        case,
        upstream_s=granularity.get(case.upstream_s, case.upstream_s),
        downstream_s=granularity.get(case.downstream_s, case.downstream_s),
    ).ideal_s
    return {
        "case": case.id,
        "time": "real",
        "mean_wall_time_seconds": run.wall_s,
        "wall_time_over_ideal": figures["wall_time_over_ideal"],
        "ideal_of_machine_s": ideal_s,
        "over_ideal_of_machine": run.wall_s / ideal_s,
        "cpu_us_per_generation": 1e6 * cpu_s / case.generations,
        "llm_wait_utilization_ratio": figures["llm_wait_utilization_ratio"],
        "llm_wait_starved_idle_ratio": figures["llm_wait_starved_idle_ratio"],
        "throughput_generations_per_second": figures["throughput_generations_per_second"],
        "request_wait_seconds_while_task_leased_mean": figures["request_wait_seconds_while_task_leased_mean"],
        "first_model_dispatch_column": figures["first_model_dispatch_column"],
        "sleep_of_0.3_ms_takes_s": granularity[0.0003],
    }
