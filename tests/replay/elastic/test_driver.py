"""The driver: the real pool, simulated engines, virtual time."""

from __future__ import annotations

import dataclasses

import pytest

from headgate_replay.elastic import Call, Site, load_of, measured, played, ramp
from headgate_replay.elastic.outcome import waits_s
from tests.replay.elastic.conftest import Plan, config


def test_a_request_waits_until_a_slot_is_free_and_no_longer() -> None:
    load = load_of("three", [Call(0.0, 0.0, 4.0), Call(1.0, 0.0, 1.0), Call(1.5, 0.5, 1.0)], slots=1)
    outcome = played(load, Plan((0, 1)), config(), Site(workers=1), validates=True)
    assert outcome.given_s == [0.0, 4.0, 5.0]
    assert outcome.done_s == [4.0, 5.0, 6.5]
    assert waits_s(load, outcome) == [0.0, 3.0, 3.5]
    assert measured(load, outcome).longest_s == 3.5


def test_answers_slow_each_other_down_as_the_load_says() -> None:
    load = load_of("two", [Call(0.0, 0.0, 4.0), Call(2.0, 0.0, 4.0)], slots=2, step_s=(1.0, 2.0))
    outcome = played(load, Plan((0, 1)), config(), Site(workers=1))
    assert outcome.done_s == [6.0, 8.0]


def test_a_worker_costs_from_the_command_to_wake_it_until_it_sleeps() -> None:
    load = load_of("long", [Call(0.0, 0.0, 100.0)], slots=1)
    site = Site(workers=2, start_s=5.0, sleep_s=0.5)
    outcome = played(load, Plan((0, 1), (10, 2), (40, 1)), config(), site, validates=True)
    first, second = outcome.stays
    assert (first.woken_s, first.slept_s, first.drained_s) == (0.0, None, None)
    assert (second.woken_s, second.ready_s, second.drained_s) == (10.0, 15.0, 40.0)
    assert second.slept_s == pytest.approx(40.0 + config().confirm_interval + 0.5)
    figures = measured(load, outcome)
    assert figures.worker_s == pytest.approx(100.0 + 31.5)
    assert figures.cost == pytest.approx(1.315)
    assert (figures.operations, figures.decisions, figures.peak) == (2, 2, 2)
    assert (figures.periods, figures.shortest_s, figures.worth_share) == (1, 25.0, 1.0)


def test_a_period_that_is_shorter_than_three_starts_is_not_worth_it() -> None:
    load = load_of("long", [Call(0.0, 0.0, 100.0)], slots=1)
    site = Site(workers=2, start_s=5.0)
    outcome = played(load, Plan((0, 1), (10, 2), (29, 1), (40, 2), (61, 1)), config(), site)
    assert measured(load, outcome).worth_share == 0.5


def test_a_drain_that_turns_back_goes_on_with_the_same_period() -> None:
    calls = [Call(0.0, 0.0, 50.0), Call(0.0, 0.0, 50.0)]
    load = load_of("two", calls, slots=1, window_s=100.0)
    plan = Plan((0, 2), (10, 1), (20, 2))
    outcome = played(load, plan, config(drain_timeout=90.0), Site(workers=2, awake=2), validates=True)
    assert [change for _, change in outcome.changes] == [-1, 1]
    assert [stay.drained_s for stay in outcome.stays] == [None, None]


def test_what_has_not_begun_when_the_time_of_a_drain_is_up_is_answered_elsewhere_once() -> None:
    calls = [Call(0.0, 40.0, 1.0), Call(0.0, 40.0, 1.0)]
    load = load_of("slow prompts", calls, slots=2)
    site = Site(workers=2, awake=2)
    outcome = played(load, Plan((0, 2), (2, 1)), config(drain_timeout=5.0), site, validates=True)
    assert outcome.hand_overs == 1
    assert (outcome.dropped, outcome.doubled) == (0, 0)
    assert sorted(at for at in outcome.done_s if at is not None) == [41.0, 48.0]


@pytest.mark.parametrize("start_s", [0.0, 1.0, 30.0])
def test_a_load_that_goes_up_and_down_is_answered_once_each(start_s: float) -> None:
    load = ramp(seed=5, scale=0.02)
    plan = Plan((0, 1), (20, 9), (21, 3), (30, 16), (45, 2), (60, 1))
    outcome = played(load, plan, config(), Site(start_s=start_s), validates=True)
    assert None not in outcome.done_s
    assert (outcome.dropped, outcome.doubled) == (0, 0)
    assert all(wait_s >= 0 for wait_s in waits_s(load, outcome))


def test_the_same_replay_gives_the_same_outcome() -> None:
    load = ramp(seed=5, scale=0.02)
    first, second = (played(load, Plan((0, 1), (15, 12), (40, 2)), config(), Site()) for _ in range(2))
    assert dataclasses.replace(first, took_s=0.0) == dataclasses.replace(second, took_s=0.0)


def test_requests_that_the_pool_does_not_take_are_counted_as_dropped() -> None:
    calls = [Call(0.001 * number, 0.0, 5.0) for number in range(20)]
    load = load_of("too many", calls, slots=1)
    outcome = played(load, Plan((0, 1)), config(max_queue=3), Site(workers=1))
    assert outcome.dropped == sum(at is None for at in outcome.done_s) > 0


def test_requests_that_wait_too_long_are_counted_as_dropped() -> None:
    calls = [Call(0.0, 0.0, 5.0) for _ in range(4)]
    outcome = played(load_of("late", calls, slots=1), Plan((0, 1)), config(queue_timeout=7.0), Site(workers=1))
    assert (outcome.dropped, sum(at is not None for at in outcome.done_s)) == (2, 2)
