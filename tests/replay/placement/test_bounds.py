"""The clairvoyant schedule, and the bound that no policy falls below."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_replay.placement import HIGH_FROM, Trace, least_waiting_s, waited_s
from headgate_replay.placement.bounds import must_wait
from headgate_replay.placement.engine import replayed
from headgate_replay.placement.peers import Easy, PlainRay, StrictFifo, clairvoyant
from headgate_replay.placement.single_victim import SingleVictim
from tests.examples import examples
from tests.replay.placement.conftest import job, small, trace, waits_of

JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 4), st.sampled_from([2.0, 8.0, 9.0])),
    min_size=1,
    max_size=12,
).map(
    lambda rows: trace(
        *(job(f"j{n}", at, lasts, gpus=gpus, priority=priority) for n, (at, lasts, gpus, priority) in enumerate(rows))
    )
)


def test_the_clairvoyant_stops_low_work_at_once_and_loses_nothing() -> None:
    jobs = trace(job("low", 0, 100, gpus=4, priority=2.0), job("high", 10, 5, gpus=4, priority=9.0))
    outcome = clairvoyant(jobs, small())
    assert waits_of(jobs, outcome) == {"low": 5, "high": 0}
    assert sum(each.lost_s for each in outcome.attempts) == 0


def test_the_clairvoyant_serves_who_has_the_least_left_inside_a_band() -> None:
    jobs = trace(job("long", 0, 100, gpus=4), job("short", 10, 5, gpus=4))
    assert waits_of(jobs, clairvoyant(jobs, small())) == {"long": 5, "short": 0}


def test_the_clairvoyant_takes_all_nodes_as_one() -> None:
    jobs = trace(job("a", 0, 10, gpus=3), job("b", 0, 10, gpus=3), job("c", 0, 10, gpus=2))
    assert set(waits_of(jobs, clairvoyant(jobs, small(nodes=2))).values()) == {0}


@given(JOBS)
@settings(deadline=None, max_examples=examples(40))
def test_the_clairvoyant_finishes_all_work_within_the_capacity(jobs: Trace) -> None:
    outcome = clairvoyant(jobs, small())
    assert None not in outcome.finished_s
    worked = [0.0] * len(jobs.jobs)
    for each in outcome.attempts:
        worked[each.job] += each.ended_s - each.began_s
    assert worked == pytest.approx([each.duration_s for each in jobs.jobs])
    for at in {each.began_s for each in outcome.attempts}:
        running = [jobs.jobs[each.job].gpus for each in outcome.attempts if each.began_s <= at < each.ended_s]
        assert sum(running) <= 4


def test_a_second_job_that_needs_everything_must_wait_for_most_of_the_first() -> None:
    jobs = trace(*(job(f"j{n}", 0, 10, gpus=4, priority=9.0) for n in range(3)))
    # Three times ten seconds of everything: by 10 + w one of three is done, while w stays below 10.
    assert least_waiting_s(jobs, small(), 0.5, HIGH_FROM) == pytest.approx(10.0, abs=0.6)
    assert least_waiting_s(jobs, small(), 0.99, HIGH_FROM) == pytest.approx(20.0, abs=0.6)


def test_nobody_must_wait_where_there_is_room_for_all() -> None:
    jobs = trace(*(job(f"j{n}", 0, 10, gpus=1, priority=9.0) for n in range(4)))
    assert least_waiting_s(jobs, small(), 0.99, HIGH_FROM) == 0


def test_low_priorities_do_not_count_in_the_bound() -> None:
    jobs = trace(job("low", 0, 1000, gpus=4, priority=2.0), job("high", 5, 10, gpus=4, priority=9.0))
    assert least_waiting_s(jobs, small(), 0.5, HIGH_FROM) == 0


def test_no_job_must_wait_in_an_empty_list() -> None:
    assert must_wait([], 4.0, 0.0) == 0


@given(JOBS, st.sampled_from([0.5, 0.9, 0.95]))
@settings(deadline=None, max_examples=examples(40))
def test_no_policy_falls_below_the_bound(jobs: Trace, quantile: float) -> None:
    bound = least_waiting_s(jobs, small(), quantile, HIGH_FROM)
    rivals = [replayed(jobs, small(), policy) for policy in _policies()]
    for outcome in [*rivals, clairvoyant(jobs, small())]:
        found = [
            wait
            for each, wait in zip(jobs.jobs, waited_s(jobs, outcome), strict=True)
            if each.priority >= HIGH_FROM and wait is not None
        ]
        if found:
            assert np.quantile(found, quantile, method="inverted_cdf") >= bound - 1e-6


def _policies() -> list[PlainRay | StrictFifo | Easy | SingleVictim]:
    return [
        PlainRay(),
        StrictFifo(),
        Easy(by_priority=False),
        Easy(by_priority=True),
        SingleVictim({}, victims_return=True),
    ]


@given(JOBS)
@settings(deadline=None, max_examples=examples(40))
def test_every_rival_finishes_everything_and_starts_nothing_early(jobs: Trace) -> None:
    for policy in _policies():
        outcome = replayed(jobs, small(), policy)
        assert None not in outcome.finished_s
        for each in outcome.attempts:
            assert each.held_s >= jobs.jobs[each.job].arrived_s
            assert each.began_s <= each.ended_s
