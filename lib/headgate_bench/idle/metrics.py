"""The metrics of a run, with the names and definitions of DataDesigner's suite."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from headgate_bench.idle.cases import Case
from headgate_bench.idle.facts import Fact, Run, Step


@dataclass(slots=True)
class Use:
    """The use of one resource, integrated over time.

    Between two consecutive facts, dt apart, with `active` units leased and `wanted` units of queued demand:
    busy grows by active·dt, idle by (capacity - active)·dt, and starved by as much as idle if anything is wanted.
    Idle time that is not starved is frontier idle: no task was ready that could have used the resource.
    """

    capacity: int  # units
    active: int = 0  # units leased now
    wanted: int = 0  # units that queued tasks (or waiting requests) ask for now
    waits: list[float] = field(default_factory=list)  # seconds from ready to leased, per task that took some
    window_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    starved_s: float = 0.0
    highest: int = 0
    _squares: float = 0.0

    def pass_time(self, seconds: float) -> None:
        """Add a time span with the current active and wanted units."""
        idle = max(0, self.capacity - self.active)
        self.window_s += seconds
        self.busy_s += self.active * seconds
        self.idle_s += idle * seconds
        self.starved_s += idle * seconds if self.wanted > 0 else 0.0
        self._squares += self.active**2 * seconds
        self.highest = max(self.highest, self.active)

    @property
    def capacity_s(self) -> float:
        """Capacity times the length of the window."""
        return self.capacity * self.window_s

    @property
    def frontier_s(self) -> float:
        """Idle time during which no ready task could have used the resource."""
        return max(0.0, self.idle_s - self.starved_s)

    @property
    def burstiness(self) -> float:
        """Standard deviation of the active units over their mean, weighted by time; 0 if nothing was active."""
        if not self.busy_s:
            return 0.0
        mean = self.busy_s / self.window_s
        return math.sqrt(max(0.0, self._squares / self.window_s - mean**2)) / mean

    def share(self, seconds: float) -> float:
        """Return a part of the capacity as a ratio."""
        return seconds / self.capacity_s if self.capacity_s else 0.0


def scheduler_use(facts: Sequence[Fact], limits: Mapping[str, int]) -> dict[str, Use]:
    """Return the use of the scheduler's resources, from the first fact to the last."""
    uses = {name: Use(limit) for name, limit in limits.items()}
    ready: dict[str, float] = {}
    parked: set[str] = set()
    for fact, seconds in _with_gaps(facts):
        wanted, active = _changes(fact, ready, parked)
        for name, units in fact.resources.items() if wanted or active else ():
            uses[name].wanted += wanted * units
            uses[name].active += active * units
        if fact.step is Step.LEASED and (was_ready := ready.pop(fact.task, None)) is not None:
            for name in fact.resources:
                uses[name].waits.append(fact.at - was_ready)
        for use in uses.values():
            use.pass_time(seconds)
    return uses


def _changes(fact: Fact, ready: dict[str, float], parked: set[str]) -> tuple[int, int]:
    """Return by how many times its task's units a fact changes the wanted and the active units."""
    match fact.step:
        case Step.READY:
            ready[fact.task] = fact.at
            return 1, 0
        case Step.LEASED:
            return -(fact.task in ready), 1
        case Step.PARKED:
            parked.add(fact.task)
            return 0, -1
        case Step.UNPARKED:
            parked.discard(fact.task)
            return 0, 1
        case Step.RELEASED if fact.task in parked:
            # Its units were returned when it was parked.
            parked.discard(fact.task)
        case Step.RELEASED:
            return 0, -1
    return 0, 0


def request_use(facts: Sequence[Fact], slots: Mapping[str, int]) -> dict[str, Use]:
    """Return the use of the providers' slots, from the first fact to the last."""
    uses = {name: Use(limit) for name, limit in slots.items()}
    waiting: dict[str, float] = {}
    for fact, seconds in _with_gaps(facts):
        use = uses.get(fact.provider)
        match fact.step:
            case Step.WAITING if use:
                waiting[fact.task] = fact.at
                use.wanted += 1
            case Step.ADMITTED if use:
                use.active += 1
                if (since := waiting.pop(fact.task, None)) is not None:
                    use.wanted -= 1
                    use.waits.append(fact.at - since)
            case Step.DONE if use:
                use.active -= 1
        for one in uses.values():
            one.pass_time(seconds)
    return uses


def _with_gaps(facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """Return each fact with the time until the next one; 0 for the last."""
    nexts = [fact.at for fact in facts[1:]] + [facts[-1].at] if facts else []
    return [(fact, max(0.0, at - fact.at)) for fact, at in zip(facts, nexts, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at the rank nearest to `share`, or 0 without values (DataDesigner's rule)."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)] if ordered else 0.0


MODEL: Final = "llm_wait"
SUBMISSION: Final = "submission"
LOCAL: Final = "local"
HOLDER: Final = "holder"
"""Task name in the facts about the initial holder of the pressed provider's slot."""

_OPEN: Final = "z_open"


def metrics_of(case: Case, run: Run) -> dict[str, Any]:
    """Return every metric of a run; seconds unless the name says otherwise."""
    scheduler = scheduler_use(run.facts, run.limits)
    requests = request_use(run.facts, run.slots)
    model, submission = scheduler[MODEL], scheduler[SUBMISSION]
    wall_s = run.wall_s
    leased_waits = leased_waits_of(run.facts)
    gaps = ready_gaps_of(run.facts)
    targets = [fact.value for fact in run.facts if fact.step is Step.TARGET]
    return {
        "case": case.document(),
        "generation_count": case.generations,
        "mean_wall_time_seconds": wall_s,
        "p95_wall_time_seconds": wall_s,
        "ideal_wall_time_seconds": case.ideal_s,
        "wall_time_over_ideal": wall_s / case.ideal_s if case.ideal_s else 0.0,
        **_model_use(model, sum(leased_waits)),
        "submission_utilization_ratio": submission.share(submission.busy_s),
        "submission_starved_idle_ratio": submission.share(submission.starved_s),
        "submission_frontier_dependency_horizon_idle_ratio": submission.share(submission.frontier_s),
        "pipeline_overlap_ratio": overlap_of(run.facts),
        "downstream_ready_gap_p95_seconds": percentile(gaps, 0.95),
        "downstream_ready_gap_max_seconds": max(gaps, default=0.0),
        "throughput_generations_per_second": case.generations / wall_s if wall_s else 0.0,
        "request_wait_seconds_while_task_leased_mean": math.fsum(leased_waits),
        "request_wait_seconds_while_task_leased_max": math.fsum(leased_waits),
        **_request_use(requests),
        "request_pressure_advisory_skip_count": sum(fact.step is Step.SKIPPED for fact in run.facts),
        "first_model_dispatch_column": first_model_stage(run.facts),
        "request_pressure_advisory_enabled": case.is_advised,
        "row_group_admission_mode": "adaptive" if case.is_adaptive else "fixed",
        "row_group_admission_target": targets[-1] if targets else case.row_groups,
        "row_group_admission_observed_max_target": max(targets, default=case.row_groups),
        "hidden_scheduler_resource_waiters": hidden_waiters_of(run.facts),
        "validation": (validation := validation_of(case, run, scheduler)),
        "validation_passed": all(validation.values()),
        "final_zero_task_leases": run.leases_left == 0,
        "final_zero_request_leases": run.requests_left == 0,
        "final_zero_request_waiters": run.waiters_left == 0,
        "dominant_idle_class": _dominant(model),
        "fingerprint": run.fingerprint(),
        **_group_waits(run.facts),
        **_requests(case, run),
    }


def _model_use(use: Use, leased_wait_s: float) -> dict[str, float]:
    waits_p95, waits_max = percentile(use.waits, 0.95), max(use.waits, default=0.0)
    return {
        f"{MODEL}_utilization_ratio": use.share(use.busy_s),
        # By definition, a lease whose request still waits for its provider is busy, although it does nothing.
        f"{MODEL}_working_ratio": use.share(use.busy_s - leased_wait_s),
        f"{MODEL}_idle_ratio": use.share(use.idle_s),
        f"{MODEL}_starved_idle_ratio": use.share(use.starved_s),
        f"{MODEL}_frontier_dependency_horizon_idle_ratio": use.share(use.frontier_s),
        f"{MODEL}_dependency_horizon_idle_ratio": use.share(use.frontier_s),
        f"{MODEL}_starved_idle_seconds": use.starved_s,
        f"{MODEL}_frontier_dependency_horizon_idle_seconds": use.frontier_s,
        f"{MODEL}_dependency_horizon_idle_seconds": use.frontier_s,
        f"{MODEL}_scheduler_queue_age_p95_seconds": waits_p95,
        f"{MODEL}_scheduler_queue_age_max_seconds": waits_max,
        f"{MODEL}_ready_gap_p95_seconds": waits_p95,
        f"{MODEL}_ready_gap_max_seconds": waits_max,
        f"{MODEL}_burstiness_coefficient": use.burstiness,
    }


def _request_use(uses: Mapping[str, Use]) -> dict[str, float]:
    """Return the figures over all providers: the mean of their utilisations, the rest over their summed capacity."""
    capacity_s = math.fsum(use.capacity_s for use in uses.values())

    def share(seconds: Sequence[float]) -> float:
        return math.fsum(seconds) / capacity_s if capacity_s else 0.0

    return {
        "request_utilization_ratio": fmean([use.share(use.busy_s) for use in uses.values()]) if uses else 0.0,
        "request_idle_ratio": share([use.idle_s for use in uses.values()]),
        "request_starved_idle_ratio": share([use.starved_s for use in uses.values()]),
        "request_frontier_dependency_horizon_idle_ratio": share([use.frontier_s for use in uses.values()]),
        "request_burstiness_coefficient": max((use.burstiness for use in uses.values()), default=0.0),
    }


def leased_waits_of(facts: Sequence[Fact]) -> list[float]:
    """Return for each task how long its requests waited while it held its lease."""
    leased: dict[str, float] = {}
    waiting: dict[str, float] = {}
    waits: Counter[str] = Counter()
    for fact in facts:
        match fact.step:
            case Step.LEASED:
                leased[fact.task] = fact.at
            case Step.WAITING:
                waiting[fact.task] = fact.at
            case Step.ADMITTED | Step.RELEASED:
                since = waiting.pop(fact.task, None)
                if since is not None and fact.task in leased:
                    waits[fact.task] += fact.at - max(since, leased[fact.task])  # type: ignore[assignment]  # seconds
                if fact.step is Step.RELEASED:
                    leased.pop(fact.task, None)
    return list(waits.values())


def ready_gaps_of(facts: Sequence[Fact]) -> list[float]:
    """Return the time from the end of each heavy stage to the lease of the fast one that it feeds."""
    ended: dict[str, float] = {}
    gaps = []
    for fact in facts:
        if fact.step is Step.RELEASED and fact.stage.startswith("heavy_"):
            ended[_fed_by(fact)] = fact.at
        elif fact.step is Step.LEASED and fact.stage.startswith("fast_") and (at := ended.get(fact.task)) is not None:
            gaps.append(fact.at - at)
    return gaps


def _fed_by(fact: Fact) -> str:
    return fact.task.replace(fact.stage, fact.stage.replace("heavy_", "fast_"))


def overlap_of(facts: Sequence[Fact]) -> float:
    """Return the share of the heavy stages' time after the first fast one had begun."""
    heavy_begun = [f.at for f in facts if f.step is Step.LEASED and f.stage.startswith("heavy_")]
    heavy_ended = [f.at for f in facts if f.step is Step.RELEASED and f.stage.startswith("heavy_")]
    fast_begun = [f.at for f in facts if f.step is Step.LEASED and f.stage.startswith("fast_")]
    if not (heavy_begun and heavy_ended and fast_begun) or heavy_ended[-1] <= heavy_begun[0]:
        return 0.0
    return max(0.0, heavy_ended[-1] - fast_begun[0]) / (heavy_ended[-1] - heavy_begun[0])


def first_model_stage(facts: Sequence[Fact]) -> str | None:
    """Return the stage of the first task that leased a unit of the model resource."""
    return next((f.stage for f in facts if f.step is Step.LEASED and MODEL in f.resources), None)


def hidden_waiters_of(facts: Sequence[Fact]) -> int:
    """Return the maximum number of workers at any time that had started but held no task lease."""
    leased: set[str] = set()
    working: set[str] = set()
    most = 0
    for fact in facts:
        match fact.step:
            case Step.LEASED:
                leased.add(fact.task)
            case Step.WORKER:
                working.add(fact.task)
                most = max(most, len(working - leased))
            case Step.RELEASED:
                leased.discard(fact.task)
                working.discard(fact.task)
    return most


def validation_of(case: Case, run: Run, scheduler: Mapping[str, Use]) -> dict[str, bool]:
    """Return the conditions that every run must meet: all work done once, and no limit exceeded."""
    leased = Counter(fact.task for fact in run.facts if fact.step is Step.LEASED and MODEL in fact.resources)
    released = Counter(fact.task for fact in run.facts if fact.step is Step.RELEASED and MODEL in fact.resources)
    groups, most_groups = 0, 0
    for fact in run.facts:
        groups += (fact.step is Step.OPENED) - (fact.step is Step.CLOSED)
        most_groups = max(most_groups, groups)
    found = {
        # Tasks of a provider that refuses run again.
        "every_task_ran_once": leased == released and (case.shape == "cooldown" or set(leased.values()) <= {1}),
        "expected_task_count": len(leased) == _expected_tasks(case),
        "row_group_cap_respected": most_groups <= case.row_groups and groups == 0,
    }
    found |= {f"{name}_cap_respected": use.highest <= use.capacity for name, use in scheduler.items()}
    if case.shape == "pipeline":
        found["downstream_interleaved"] = overlap_of(run.facts) > 0
    return found


def _expected_tasks(case: Case) -> int:
    return case.records if case.shape == "requests" else case.generations


def _dominant(use: Use) -> str:
    if use.share(use.idle_s) < 0.05:
        return "none"
    return "starved" if use.starved_s >= use.frontier_s else "frontier_dependency_horizon"


def _group_waits(facts: Sequence[Fact]) -> dict[str, float]:
    """Return how long the tasks of an arriving peer waited; empty without a peer."""
    ready = {f.task: f.at for f in facts if f.step is Step.READY and f.stage == "peer"}
    if not ready:
        return {}
    waits = [f.at - ready[f.task] for f in facts if f.step is Step.LEASED and f.task in ready]
    return {
        "peer_first_wait_seconds": waits[0],
        "peer_wait_p95_seconds": percentile(waits, 0.95),
        "peer_wait_max_seconds": max(waits),
    }


def _requests(case: Case, run: Run) -> dict[str, float]:
    """Return the figures of cases with requests."""
    if not run.slots:
        return {}
    admitted = sum(fact.step is Step.ADMITTED for fact in run.facts)
    if case.shape == "requests":
        return {"requests_per_task": admitted / case.records}
    found = {"open_provider_starved_idle_ratio": _open_provider_starved(run)}
    if case.shape == "pressure":
        found["request_utilization_while_pressed_ratio"] = _use_while_pressed(run)
    return found


def _use_while_pressed(run: Run) -> float:
    """Return the mean utilisation of the providers' slots until the pressed one is released."""
    let_go = next(n for n, fact in enumerate(run.facts) if fact.step is Step.DONE and fact.task == HOLDER)
    uses = request_use(run.facts[: let_go + 1], run.slots)
    return fmean([use.share(use.busy_s) for use in uses.values()])


def _open_provider_starved(run: Run) -> float:
    """Return the share of the run in which the open provider had a free slot and a task for it was ready or waiting."""
    ready: set[str] = set()
    active, starved_s, last = 0, 0.0, run.facts[0].at
    for fact in run.facts:
        if ready and active < run.slots[_OPEN]:
            starved_s += fact.at - last
        last = fact.at
        if fact.stage != _OPEN:
            continue
        match fact.step:
            case Step.READY:
                ready.add(fact.task)
            case Step.ADMITTED:
                ready.discard(fact.task)
                active += 1
            case Step.DONE:
                active -= 1
    return starved_s / run.wall_s if run.wall_s else 0.0
