"""One run of a case: its tasks on Headgate's dispatch loop, its requests through request admission."""

from __future__ import annotations

import asyncio
import random
from typing import Final

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
from headgate_bench.idle.facts import Run, Step
from headgate_bench.idle.metrics import LOCAL, MODEL, SUBMISSION
from headgate_bench.idle.providers import Providers
from headgate_bench.idle.recording import Recorder
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
        now=clock.monotonic,
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
