"""The suite: runs the cases, computes their figures, and checks them."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from headgate.core import HolderId, Task
from headgate.core.errors import InvalidInputError
from headgate.scheduling import (
    BoundedBorrow,
    Dispatcher,
    DispatchLoop,
    FrontierRules,
    StrictFair,
    TaskPolicy,
    Trace,
)
from headgate.simulation import LoopClock, run_virtual
from headgate_bench.definition import Progress
from headgate_bench.idle.baseline import committed_baseline, compared, read_baseline
from headgate_bench.idle.cases import Case, Mode, cases_of
from headgate_bench.idle.checks import Check, Severity, checks_of, committed_rules, summary_of, with_checks
from headgate_bench.idle.facts import Recorder, Run, Step
from headgate_bench.idle.metrics import LOCAL, MODEL, SUBMISSION, metrics_of
from headgate_bench.idle.providers import ARRIVAL, HEAVY, SEED, Providers, row_groups_of

_ROWS: Final = 8_192
"""Maximum number of open rows, whatever the size of the groups (DataDesigner's rule)."""


async def run_case(case: Case, seed: int) -> Run:
    """Run a case once on the running loop, whose time may be virtual, and return its facts."""
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
        trace=Trace(recorder.emit),
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
        # A stated reserve is kept for a second after each arrival, since peers arrive all at once here.
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
    """Return the median real duration of a sleep of each service time on this machine."""

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
    """Return ratios of the real wall time of a case to that of its control; the two take turns."""
    return [_wall_s(case, seed) / _wall_s(control, seed) for _ in range(repeats)]


def _wall_s(case: Case, seed: int) -> float:
    return asyncio.run(run_case(case, seed)).wall_s


def run_in_real_time(case: Case, seed: int, granularity: Mapping[float, float]) -> dict[str, Any]:
    """Return the figures of one run by the wall clock.

    `over_ideal_of_machine` divides the wall time by the ideal with real durations of sleeps as service times: the rest
    above 1 is due to the scheduler and the machine.
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
        "ideal_of_machine_s": ideal_s,
        "over_ideal_of_machine": run.wall_s / ideal_s,
        "cpu_us_per_generation": 1e6 * cpu_s / case.generations,
        "sleep_of_0.3_ms_takes_s": granularity[0.0003],
    } | {name: figures[name] for name in _BY_THE_CLOCK}


_BY_THE_CLOCK: Final = (
    "mean_wall_time_seconds",
    "wall_time_over_ideal",
    "llm_wait_utilization_ratio",
    "llm_wait_starved_idle_ratio",
    "throughput_generations_per_second",
    "request_wait_seconds_while_task_leased_mean",
    "first_model_dispatch_column",
)


@dataclass(frozen=True, slots=True)
class Suite:
    """The result of a run of the suite."""

    summary: Mapping[str, Any]  # every figure and check; the same bytes for the same seed
    runs: Mapping[str, Run]  # the facts of each case, by id
    cpu_us: Mapping[str, float]  # CPU time per generation by case, in microseconds

    @property
    def cases(self) -> Mapping[str, Mapping[str, Any]]:
        """Figures by case."""
        cases: Mapping[str, Mapping[str, Any]] = self.summary["cases"]
        return cases

    def failures(self, severity: Severity) -> list[str]:
        """Return the names of the failed checks of a severity."""
        checks = self.summary["checks"]["checks"]
        return [check["name"] for check in checks if check["severity"] == severity and not check["passed"]]

    @property
    def mean_cpu_us(self) -> float:
        """CPU time per generation over all cases, in microseconds."""
        generations = {name: int(case["generation_count"]) for name, case in self.cases.items()}
        return math.fsum(self.cpu_us[name] * n for name, n in generations.items()) / sum(generations.values())


def chosen_cases(mode: Mode, ids: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases with these ids, or all cases of the mode if there are none.

    Raises:
        InvalidInputError: if the mode has no case of an id.
    """
    cases = {case.id: case for case in cases_of(mode)}
    unknown = [name for name in ids if name not in cases]
    if unknown:
        raise InvalidInputError(
            f"the {mode} idle suite has no case {unknown[0]!r}", next_step=f"It has {', '.join(cases)}."
        )
    return tuple(cases[name] for name in ids) or tuple(cases.values())


def run_suite(mode: Mode, ids: Sequence[str], *, seed: int, baseline: str, progress: Progress) -> Suite:
    """Run the cases in virtual time and check them.

    Without `ids` all cases of the mode run; `baseline` is a file, `none`, or empty for the built-in one.

    Raises:
        InvalidInputError: if an id or the baseline is not valid; no case has run then.
    """
    cases = chosen_cases(mode, ids)
    before = _baseline(mode, baseline)
    found: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    cpu_us: dict[str, float] = {}
    for number, case in enumerate(cases):
        progress(number / len(cases), case.id)
        repeated = [_timed(case, seed) for _ in range(case.iterations)]
        runs[case.id] = repeated[0]
        found[case.id] = metrics_of(case, repeated[0]) | {
            "iterations_equal": len({run.fingerprint() for run in repeated}) == 1
        }
        cpu_us[case.id] = 1e6 * min(run.cpu_s for run in repeated) / case.generations
    summary = summary_of(found, mode, time="virtual", seed=seed)
    checks = _checks(summary, before, is_whole=not ids)
    return Suite(with_checks(summary, checks), runs, cpu_us)


def _timed(case: Case, seed: int) -> Run:
    began = time.process_time()
    run = run_virtual(run_case(case, seed))
    return replace(run, cpu_s=time.process_time() - began)


def _baseline(mode: Mode, given: str) -> Mapping[str, Any] | None:
    if given == "none":
        return None
    return read_baseline(Path(given), mode) if given else committed_baseline(mode)


def _checks(summary: Mapping[str, Any], before: Mapping[str, Any] | None, *, is_whole: bool) -> list[Check]:
    rules = committed_rules()
    checks = checks_of(summary, rules, is_whole=is_whole)
    if before is not None:
        checks += compared(summary, before, rules.tolerances, is_whole=is_whole)
    return checks


def worst_over_ideal(suite: Suite, mode: Mode) -> tuple[str, float]:
    """Return the case with the highest ratio of wall time to its ideal, and that ratio; controls are left out."""
    held = [case.id for case in cases_of(mode) if case.id in suite.cases and not case.is_control]
    if not held:
        return "", math.nan
    worst = max(held, key=lambda name: float(suite.cases[name]["wall_time_over_ideal"]))
    return worst, float(suite.cases[worst]["wall_time_over_ideal"])
