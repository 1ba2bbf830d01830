"""Figures of a replay, from records made by hand."""

from __future__ import annotations

import itertools

import pytest

from headgate_replay.placement import Decision, Outcome, measured
from headgate_replay.placement.engine import Attempt
from headgate_replay.placement.figure import blocks, held_by_kind
from tests.replay.placement.conftest import job, small, trace

JOBS = trace(
    job("low", 0, 60, gpus=4, priority=2.0, kind="low"), job("high", 40, 20, gpus=2, priority=9.0, kind="high")
)
STAYS = (
    Attempt(0, (0,), 0.0, 0.0, 40.0, 10.0, is_last=False),
    Attempt(1, (0,), 40.0, 40.0, 60.0, 0.0, is_last=True),
    Attempt(0, (0,), 60.0, 60.0, 95.0, 5.0, is_last=True),
)


def outcome(*decisions: Decision, finished: tuple[float | None, ...] = (95.0, 60.0)) -> Outcome:
    return Outcome("p", "says", STAYS, finished, decisions)


def test_waiting_is_all_time_beyond_the_own_work() -> None:
    found = measured(JOBS, small(), outcome())
    assert (found.high.p50_s, found.high.p99_s, found.high.jobs) == (0.0, 0.0, 1)
    assert (found.bands[2].p50_s, found.bands[2].mean_s) == (35.0, 35.0)
    assert list(found.bands) == [9, 2]


def test_use_counts_what_worked_while_jobs_arrived_and_useful_what_was_not_lost() -> None:
    found = measured(JOBS, small(), outcome())
    assert found.utilisation == pytest.approx(1.0)
    assert found.useful == pytest.approx(0.75)
    assert found.makespan_s == 95.0


def test_lost_work_stops_and_victims_are_counted() -> None:
    found = measured(JOBS, small(), outcome())
    assert (found.lost_gpu_s, found.lost_share_s) == (60.0, 15.0)
    assert (found.preemptions, found.victims, found.victims_done, found.never_done) == (1, 1, 1, 0)


def test_a_victim_that_is_forgotten_is_never_done_and_waits_in_no_figure() -> None:
    found = measured(JOBS, small(), outcome(finished=(None, 60.0)))
    assert (found.victims_done, found.never_done, found.bands[2].p50_s) == (0, 1, None)


def test_lost_work_is_compared_with_the_least_over_all_decisions() -> None:
    decisions = (
        Decision((0,), 6.0, 3.0, 6.0, is_exact=True),
        Decision((0,), 3.0, 3.0, 3.0, is_exact=False),
    )
    found = measured(JOBS, small(), outcome(*decisions))
    assert found.lost_over_least == pytest.approx(1.5)
    assert found.lost_over_least_in_band == pytest.approx(1.0)
    assert (found.decisions, found.exact_share) == (2, 0.5)


@pytest.mark.parametrize(("lost", "ratio"), [(0.0, 1.0), (2.0, None)])
def test_there_is_no_ratio_to_nothing(lost: float, ratio: float | None) -> None:
    found = measured(JOBS, small(), outcome(Decision((0,), lost, 0.0, 0.0, is_exact=True)))
    assert found.lost_over_least == ratio


def test_held_gpus_are_means_between_edges() -> None:
    held = held_by_kind(JOBS, small(), outcome(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0])
    assert held == {"low": [4, 4, 0, 4, 3], "high": [0, 0, 2, 0, 0]}


def test_blocks_lie_on_the_gpus_of_their_node_without_overlap() -> None:
    jobs = trace(*(job(f"j{n}", n, 10 - n, gpus=1 + n % 2) for n in range(3)))
    stays = tuple(Attempt(n, (0,), float(n), float(n), 10.0, 0.0, is_last=True) for n in range(3))
    drawn = blocks(jobs, small(), Outcome("p", "", stays, (10.0,) * 3), 0.0, 20.0)
    assert sum(each.high - each.low for each in drawn) == pytest.approx(4)
    places = sorted((each.low, each.high) for each in drawn)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(places))


def test_a_place_is_drawn_again_once_it_is_free_and_cut_where_no_whole_one_is() -> None:
    jobs = trace(job("a", 0, 5, gpus=1), job("b", 0, 20, gpus=2), job("c", 0, 5, gpus=1), job("d", 6, 5, gpus=2))
    stays = tuple(
        Attempt(n, (0,), at, at, end, 0.0, is_last=True)
        for n, (at, end) in enumerate([(0.0, 5.0), (0.0, 20.0), (0.0, 5.0), (6.0, 11.0)])
    )
    drawn = blocks(jobs, small(), Outcome("p", "", stays, (5.0, 20.0, 5.0, 11.0)), 0.0, 20.0)
    assert [(each.low, each.high) for each in drawn if each.stay.job == 3] == [(0.0, 1.0), (3.0, 4.0)]
