"""The seed's rule, repaired: each test is one of its flaws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.elastic.policies import Threshold
from tests.elastic.policies.conftest import config, demand, wanted
from tests.examples import examples


def asked(policy: Threshold, every_s: float, times: int, *, start: float = 0.0, **told: object) -> list[int]:
    return [wanted(policy, demand(**told), start + number * every_s) for number in range(times)]


def test_a_backlog_of_500_never_scales_down_and_wakes_all_it_can_use() -> None:
    found = asked(Threshold(config()), 5.0, 100, running=4, waiting=500, active=4)
    assert min(found) >= 4
    assert found[0] >= 16


def test_seven_in_flight_on_two_workers_are_left_alone() -> None:
    assert set(asked(Threshold(config()), 5.0, 120, running=7, active=2)) == {2}


def test_a_quiet_pool_shrinks_whatever_the_interval_of_decisions() -> None:
    for every_s in (0.5, 5.0, 10.01, 60.0):
        assert 3 in asked(Threshold(config(monitoring_interval=every_s)), every_s, 130, active=4), every_s


def test_load_has_to_be_low_for_the_stable_period_without_a_break() -> None:
    policy = Threshold(config(min_stable_period=10.0))
    found = []
    for number in range(20):
        peak = 3.9 if number % 2 else 0.1  # a burst between any two decisions
        found.append(wanted(policy, demand(running=1, peak_worth=peak, active=4), number * 5.0))
    assert set(found) == {4}


def test_one_worker_sleeps_per_cooldown() -> None:
    policy = Threshold(config(scale_down_cooldown=60.0))
    awake, found = 4, []
    for number in range(40):
        awake = wanted(policy, demand(active=awake), number * 5.0)
        found.append(awake)
    assert found[2:14] == [3] * 12
    assert found[14:26] == [2] * 12
    assert found[-1] == 1


def test_as_many_workers_are_woken_as_the_load_needs() -> None:
    assert wanted(Threshold(config()), demand(running=8, waiting=24), 0.0) == 5  # 4 / 0.8


def test_the_cooldown_after_waking_holds_only_while_nothing_waits() -> None:
    policy = Threshold(config(scale_up_cooldown=30.0))
    assert wanted(policy, demand(running=7), 0.0) == 2
    assert wanted(policy, demand(running=15, active=2), 5.0) == 2
    assert wanted(policy, demand(running=16, waiting=1, active=2), 5.25) == 3
    assert wanted(policy, demand(running=23, active=3), 36.0) == 4


def test_starting_workers_are_capacity_already() -> None:
    assert wanted(Threshold(config()), demand(running=8, waiting=8, starting=2), 0.0) == 3


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=60))
@pytest.mark.parametrize("period_s", [0.0, 10.0])
def test_no_step_down_is_one_that_the_next_step_would_undo(period_s: float, steps: list[tuple[int, int, int]]) -> None:
    policy = Threshold(config(min_stable_period=period_s, scale_down_cooldown=0.0))
    for number, (running, waiting, active) in enumerate(steps):
        told = demand(running=min(running, active * 8), waiting=waiting, active=active)
        found = wanted(policy, told, number * 5.0)
        assert found >= active - 1
        if found < active:
            assert not waiting
            assert told.worth <= 0.8 * found
