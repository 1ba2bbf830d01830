"""Drawn jobs with heavy tails, and the policies that stop long work for short work."""

from __future__ import annotations

import pytest

from headgate.placement.rules import PreemptionRules
from headgate_replay.placement import (
    InvalidTraceError,
    cluster_of,
    compared,
    heavy_tailed,
    measured,
    through_ledger,
    without_durations,
)
from headgate_replay.placement.comparison import check_fits
from headgate_replay.placement.engine import replayed
from headgate_replay.placement.preemptive import LeastAttained, LeastRemaining
from tests.replay.placement.conftest import job, small, trace, waits

CLUSTER = cluster_of(8)


def test_the_same_seed_draws_the_same_jobs_of_the_load_that_was_asked_for() -> None:
    drawn = heavy_tailed(CLUSTER, jobs=300, load=1.1, seed=4)
    assert drawn == heavy_tailed(CLUSTER, jobs=300, load=1.1, seed=4)
    assert drawn.jobs != heavy_tailed(CLUSTER, jobs=300, load=1.1, seed=5).jobs
    check_fits(drawn, CLUSTER)
    span_s = max(each.arrived_s for each in drawn.jobs)
    assert sum(each.gpus * each.duration_s for each in drawn.jobs) == pytest.approx(1.1 * 64 * span_s, rel=0.05)


def test_durations_lie_within_five_decades_and_gangs_are_among_the_jobs() -> None:
    jobs = heavy_tailed(CLUSTER, jobs=2_000).jobs
    durations = sorted(each.duration_s for each in jobs)
    assert durations[-1] / durations[0] > 10_000
    assert {len(each.bundles) for each in jobs} == {1, 2, 4}
    assert {each.priority for each in jobs} == {9.0, 8.0, 5.0, 2.0}


def test_jobs_of_one_owner_are_alike() -> None:
    jobs = heavy_tailed(CLUSTER, jobs=2_000).jobs
    by_owner: dict[str, list[float]] = {}
    for each in jobs:
        by_owner.setdefault(each.labels["owner"], []).append(each.duration_s)
    medians = sorted(sorted(found)[len(found) // 2] for found in by_owner.values())
    assert medians[-1] > 30 * medians[0]


def test_durations_that_are_not_told_leave_the_jobs_as_they_are() -> None:
    told = heavy_tailed(CLUSTER, jobs=20)
    untold = without_durations(told)
    assert [each.duration_s for each in untold.jobs] == [each.duration_s for each in told.jobs]
    assert {each.estimated_s for each in untold.jobs} == {0.0}


@pytest.mark.parametrize(("jobs", "load"), [(0, 0.9), (10, 0.0), (10, float("nan"))])
def test_numbers_that_draw_no_trace_are_refused(jobs: int, load: float) -> None:
    with pytest.raises(InvalidTraceError, match="jobs must be in"):
        heavy_tailed(CLUSTER, jobs=jobs, load=load)


def test_work_that_has_attained_less_stops_work_that_has_attained_more() -> None:
    jobs = trace(job("long", 0, 5_000, gpus=4), job("short", 1_000, 100, gpus=4))
    assert waits(jobs, small(), LeastAttained()) == {"long": 1_100, "short": 0}


def test_work_of_one_queue_waits_for_who_came_first() -> None:
    jobs = trace(job("first", 0, 100, gpus=4), job("second", 50, 10, gpus=4))
    assert waits(jobs, small(), LeastAttained()) == {"first": 0, "second": 50}


def test_work_with_less_left_stops_work_with_more_but_not_at_once() -> None:
    jobs = trace(job("long", 0, 1_000, gpus=4), job("short", 10, 50, gpus=4))
    assert waits(jobs, small(), LeastRemaining()) == {"long": 120, "short": 60}


def test_whoever_fits_beside_others_stops_nobody() -> None:
    jobs = trace(job("long", 0, 1_000, gpus=3), job("short", 100, 10, gpus=1))
    assert waits(jobs, small(), LeastRemaining()) == {"long": 0, "short": 0}


def test_every_policy_ends_every_job_of_a_drawn_trace() -> None:
    drawn = without_durations(heavy_tailed(CLUSTER, jobs=60, seed=2))
    names = ("headgate", "priority-easy", "least-attained", "least-remaining")
    found = compared(drawn, CLUSTER, PreemptionRules(), names).measures
    assert [each.never_done for each in found] == [0, 0, 0, 0]


def test_slowdown_is_bounded_by_ten_seconds_and_counts_all_time_in_the_system() -> None:
    jobs = trace(job("holds", 0, 100, gpus=4), job("tiny", 50, 1, gpus=4))
    outcome = replayed(jobs, small(), LeastAttained())
    found = measured(jobs, small(), outcome)
    assert (found.all.mean_s, found.widest.jobs) == (25, 2)
    assert found.slowdown_p95 == pytest.approx(5.1)


def test_the_ledger_keeps_its_invariants_on_a_drawn_trace() -> None:
    drawn = without_durations(heavy_tailed(CLUSTER, jobs=60, load=1.1, seed=3))
    through_ledger(drawn, CLUSTER, PreemptionRules(min_runtime_s=1), validates=True)
