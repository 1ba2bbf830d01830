"""The metrics of the idle suite, against event lists made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate_bench.idle.cases import Case, cases_of
from headgate_bench.idle.facts import Fact, Run, Step
from headgate_bench.idle.metrics import (
    Use,
    first_model_stage,
    hidden_waiters_of,
    leased_waits_of,
    metrics_of,
    percentile,
    ready_gaps_of,
    request_use,
    scheduler_use,
)

MODEL = {"submission": 1, "llm_wait": 1}
LIMITS = {"submission": 4, "llm_wait": 2, "local": 4}


def ready(at: float, task: str) -> Fact:
    return Fact(at, Step.READY, task, task, MODEL)


def leased(at: float, task: str) -> Fact:
    return Fact(at, Step.LEASED, task, task, MODEL)


def released(at: float, task: str) -> Fact:
    return Fact(at, Step.RELEASED, task, task, MODEL)


def ends(at: float) -> Fact:
    return Fact(at, Step.ENDED)


BEGINS = Fact(0.0, Step.BEGUN)


def test_busy_idle_starved_and_frontier_idle_are_integrals_between_consecutive_facts() -> None:
    facts = [
        BEGINS,  # 1 s with nothing ready: 2 units of frontier idle
        ready(1.0, "heavy_0"),
        ready(1.0, "heavy_1"),  # 1 s with both queued and none leased: 2 units of starved idle
        leased(2.0, "heavy_0"),  # 1 s: one busy, one idle while heavy_1 is queued: 1 unit starved
        leased(3.0, "heavy_1"),  # 1 s: both busy
        released(4.0, "heavy_0"),  # 1 s: one busy, nothing queued: 1 unit of frontier idle
        released(5.0, "heavy_1"),
        ends(5.0),
    ]
    use = scheduler_use(facts, LIMITS)["llm_wait"]
    assert use.capacity_s == 10.0
    assert (use.busy_s, use.idle_s, use.starved_s, use.frontier_s) == (4.0, 6.0, 3.0, 3.0)
    assert use.waits == [1.0, 2.0]
    assert use.highest == 2


def test_other_resources_are_counted_apart() -> None:
    facts = [BEGINS, ready(0.0, "heavy_0"), leased(0.0, "heavy_0"), released(2.0, "heavy_0"), ends(2.0)]
    uses = scheduler_use(facts, LIMITS)
    assert uses["submission"].share(uses["submission"].busy_s) == 0.25
    assert uses["llm_wait"].share(uses["llm_wait"].busy_s) == 0.5
    assert uses["local"].busy_s == 0.0


def test_burstiness_is_the_deviation_of_the_active_units_over_their_mean() -> None:
    use = Use(2)
    use.active = 2
    use.pass_time(1.0)
    use.active = 0
    use.pass_time(1.0)
    assert use.burstiness == pytest.approx(1.0)
    assert Use(2).burstiness == 0.0


def test_a_provider_is_starved_while_a_request_waits_and_a_slot_is_free() -> None:
    def about(at: float, step: Step, task: str) -> Fact:
        return Fact(at, step, task, "a", provider="slow")

    facts = [
        BEGINS,
        about(1.0, Step.WAITING, "t-1"),
        about(3.0, Step.ADMITTED, "t-1"),
        about(3.0, Step.WAITING, "t-2"),
        about(4.0, Step.DONE, "t-1"),
        about(4.0, Step.ADMITTED, "t-2"),
        about(5.0, Step.DONE, "t-2"),
        ends(6.0),
    ]
    use = request_use(facts, {"slow": 1, "other": 3})["slow"]
    assert (use.busy_s, use.idle_s, use.starved_s, use.frontier_s) == (2.0, 4.0, 2.0, 2.0)
    assert use.waits == [2.0, 1.0]


def test_a_leased_wait_is_the_overlap_of_a_request_s_wait_with_its_task_s_lease() -> None:
    facts = [
        Fact(0.0, Step.WAITING, "t-1", provider="slow"),
        leased(1.0, "t-1"),
        Fact(4.0, Step.ADMITTED, "t-1", provider="slow"),
        Fact(5.0, Step.DONE, "t-1", provider="slow"),
        released(5.0, "t-1"),
        leased(5.0, "t-2"),
        Fact(5.0, Step.WAITING, "t-2", provider="slow"),
        released(7.0, "t-2"),
    ]
    assert leased_waits_of(facts) == [3.0, 2.0]


def test_a_ready_gap_runs_from_the_end_of_a_heavy_stage_to_the_lease_of_its_fast_one() -> None:
    facts = [
        Fact(1.0, Step.RELEASED, "3/heavy_0", "heavy_0", MODEL),
        Fact(1.2, Step.RELEASED, "3/heavy_1", "heavy_1", MODEL),
        Fact(1.5, Step.LEASED, "3/fast_0", "fast_0", MODEL),
        Fact(2.2, Step.LEASED, "3/fast_1", "fast_1", MODEL),
    ]
    assert ready_gaps_of(facts) == pytest.approx([0.5, 1.0])


def test_the_first_model_dispatch_is_the_first_lease_on_the_model_resource() -> None:
    facts = [Fact(0.0, Step.LEASED, "0/seed", "seed", {"submission": 1, "local": 1}), leased(0.0, "z_open")]
    assert first_model_stage(facts) == "z_open"
    assert first_model_stage(facts[:1]) is None


def test_a_worker_without_a_task_lease_is_a_hidden_waiter() -> None:
    worker = Fact(0.0, Step.WORKER, "t-1")
    assert hidden_waiters_of([leased(0.0, "t-1"), worker, released(1.0, "t-1")]) == 0
    assert hidden_waiters_of([worker, leased(0.0, "t-1"), released(1.0, "t-1")]) == 1


def test_a_percentile_is_the_value_at_the_nearest_rank() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0, 5.0], 0.5) == 3.0
    assert percentile([4.0, 1.0, 3.0, 2.0, 5.0], 0.95) == 5.0
    assert percentile([], 0.95) == 0.0


CASE = Case("two", "test", records=1, buffer=1, row_groups=1, capacity=4, fanout=1, upstream_s=2.0, downstream_s=1.0)


def _run() -> Run:
    def step(at: float, what: Step, stage: str) -> Fact:
        return Fact(at, what, f"0/{stage}", stage, MODEL)

    facts = [
        BEGINS,
        Fact(0.0, Step.OPENED, "0"),
        step(0.0, Step.READY, "heavy_0"),
        step(0.0, Step.LEASED, "heavy_0"),
        Fact(0.0, Step.WORKER, "0/heavy_0"),
        step(2.0, Step.RELEASED, "heavy_0"),
        step(2.0, Step.READY, "fast_0"),
        step(2.5, Step.LEASED, "fast_0"),
        Fact(2.5, Step.WORKER, "0/fast_0"),
        step(3.5, Step.RELEASED, "fast_0"),
        Fact(3.5, Step.CLOSED, "0"),
        ends(4.0),
    ]
    return Run(facts, LIMITS)


def test_the_metrics_of_a_run_add_up() -> None:
    found = metrics_of(CASE, _run())
    assert found["mean_wall_time_seconds"] == 4.0
    assert found["wall_time_over_ideal"] == pytest.approx(4.0 / 3.0)
    assert found["llm_wait_utilization_ratio"] == pytest.approx(3 / 8)
    assert found["llm_wait_starved_idle_ratio"] == pytest.approx(1 / 8)
    assert found["llm_wait_frontier_dependency_horizon_idle_ratio"] == pytest.approx(4 / 8)
    assert found["throughput_generations_per_second"] == 0.5
    assert found["downstream_ready_gap_max_seconds"] == 0.5
    assert found["dominant_idle_class"] == "frontier_dependency_horizon"
    assert {name: held for name, held in found["validation"].items() if not held} == {"downstream_interleaved": False}


def test_a_task_that_ran_twice_or_not_at_all_fails_the_validation() -> None:
    facts = list(_run().facts)
    twice = replace(_run(), facts=[*facts[:-1], leased(3.5, "0/fast_0"), released(3.6, "0/fast_0"), facts[-1]])
    assert not metrics_of(CASE, twice)["validation"]["every_task_ran_once"]
    absent = replace(_run(), facts=[fact for fact in facts if fact.stage != "fast_0"])
    assert not metrics_of(CASE, absent)["validation"]["expected_task_count"]


def test_an_exceeded_limit_fails_the_validation() -> None:
    assert not metrics_of(CASE, replace(_run(), limits={**LIMITS, "llm_wait": 0}))["validation"][
        "llm_wait_cap_respected"
    ]
    opened = [Fact(0.0, Step.OPENED, "1"), *_run().facts, Fact(4.0, Step.CLOSED, "1")]
    assert not metrics_of(CASE, replace(_run(), facts=opened))["validation"]["row_group_cap_respected"]


IDEALS = {
    "row-scale/rows-64": 0.21,
    "row-scale/rows-128": 0.42,
    "row-scale/rows-256": 0.84,
    "row-group-concurrency/row-groups-1": 1.69,
    "row-group-concurrency/row-groups-2": 0.84,
    "row-group-concurrency/row-groups-4": 0.42,
    "buffer-size/buffer-1": 1.69,
    "llm-capacity/capacity-4": 0.84,
    "llm-capacity/capacity-8": 0.42,
    "custom-model-weight/weight-custom-model-1": 1.69,
    "stress-shape/narrow-frontier-high-cap": 6.45,
    "stress-shape/wide-frontier-high-cap": 3.23,
    "adaptations/adaptive-row-groups-fixed-low": 3.23,
    "adaptations/adaptive-row-groups-adaptive": 0.40,
    "adaptations/adaptive-row-groups-fixed-high": 0.40,
}


def test_the_ideal_of_a_case_follows_from_its_parameters() -> None:
    found = {case.id: round(case.ideal_s, 2) for case in cases_of("quick") if case.id in IDEALS}
    assert found == pytest.approx(IDEALS, abs=0.006)


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_ids_are_unique_and_the_seed_s_count_of_cases_is_there(mode: str) -> None:
    cases = cases_of(mode)  # type: ignore[arg-type]
    assert len({case.id for case in cases}) == len(cases)
    assert sum(case.sweep != "headgate" for case in cases) == {"quick": 22, "full": 28}[mode]
