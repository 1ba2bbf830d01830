"""The rules of others, with what they are known for, flaws included."""

from __future__ import annotations

import pytest

from headgate_replay.elastic.peers import Fixed, Knative, Serve, Verl
from tests.elastic.policies.conftest import Flow, demand, wanted


def test_fixed_is_fixed() -> None:
    assert wanted(Fixed(7), demand(waiting=100), 0.0) == 7


# verl


def test_verl_scales_down_while_480_requests_wait() -> None:
    rule = Verl()
    found = [wanted(rule, demand(running=8, waiting=480, active=4), now) for now in (0.0, 5.0, 10.0)]
    assert found == [4, 4, 3]


def test_verl_goes_back_and_forth_under_a_constant_load() -> None:
    rule, awake, changes = Verl(), 2, 0
    for number in range(120):
        after = wanted(rule, demand(running=7, active=awake), number * 5.0)
        changes += after != awake
        awake = after
    assert changes > 10


def test_verl_never_scales_when_it_looks_seldom() -> None:
    class Seldom(Verl):
        TICK_S = 10.01

    rule = Seldom()
    assert {wanted(rule, demand(active=4), number * 10.01) for number in range(60)} == {4}


def test_verl_wakes_one_worker_per_cooldown_and_waits_for_it() -> None:
    rule, awake, starting, found = Verl(), 1, 0, []
    for number in range(22):
        told = demand(running=8 * awake, active=awake, starting=starting)
        after = wanted(rule, told, number * 5.0)
        awake, starting = awake + starting, after - awake - starting
        found.append(after)
    assert [number * 5 for number in range(1, 22) if found[number] > found[number - 1]] == [10, 55, 100]


def test_verl_ignores_draining_workers_and_what_happens_between_its_ticks() -> None:
    rule = Verl()
    for now in (0.0, 5.0):
        wanted(rule, demand(running=8, running_draining=8, active=2), now)
    assert wanted(rule, demand(running=8, running_draining=8, active=2), 9.9) == 2
    assert wanted(rule, demand(running=8, running_draining=8, active=2), 10.0) == 1


# Ray Serve


def test_serve_scales_up_once_it_was_asked_for_without_a_break_for_the_delay() -> None:
    flow = Flow(Serve(target_requests=2.0, look_back_period_s=5.0))
    flow.run(1.0, 30.0)  # two requests under way
    found = flow.run(5.0, 60.0)  # ten
    assert found[:6] == [1] * 6
    assert found[6] == 5


def test_serve_starts_anew_when_the_wish_changes_its_direction() -> None:
    rule = Serve(look_back_period_s=5.0, upscale_delay_s=30.0)
    flow = Flow(rule)
    for _ in range(6):
        flow.run(5.0, 20.0)
        found = flow.run(1.0, 10.0)
    assert set(found) == {1}


def test_serve_scales_down_after_ten_minutes() -> None:
    flow = Flow(Serve(), awake=5)
    flow.run(5.0, 60.0)
    found = flow.run(1.0, 700.0)
    assert found[110] == 5
    assert found[-1] == 1


# Knative


@pytest.fixture
def calm() -> Flow:
    flow = Flow(Knative())
    flow.run(4.0, 120.0, every_s=2.0)
    return flow


def test_knative_is_proportional_over_the_stable_window(calm: Flow) -> None:
    assert calm.awake == 2  # 1 / 0.7
    assert calm.run(5.0, 120.0, every_s=2.0)[-1] == 2
    assert calm.run(6.0, 120.0, every_s=2.0)[-1] == 3


def test_knative_panics_at_twice_its_capacity_and_takes_nothing_away_for_a_window(calm: Flow) -> None:
    up = calm.run(24.0, 6.0, every_s=2.0)
    assert up[-1] == 9  # 6 / 0.7
    after = calm.run(1.0, 56.0, every_s=2.0)
    assert set(after) == {9}
    assert calm.run(1.0, 70.0, every_s=2.0)[-1] == 1


def test_knative_waits_for_the_stable_window_below_the_panic_threshold(calm: Flow) -> None:
    assert calm.run(8.0, 6.0, every_s=2.0)[-1] == 2
    assert calm.run(8.0, 60.0, every_s=2.0)[-1] == 3


def test_knative_halves_at_most_at_each_tick() -> None:
    rule = Knative()
    wanted(rule, demand(active=1), 0.0)
    assert wanted(rule, demand(active=16), 100.0) == 8


def test_knative_keeps_what_it_finds_for_a_window() -> None:
    flow = Flow(Knative(), awake=6)
    assert set(flow.run(1.0, 58.0, every_s=2.0)) == {6}


def test_knative_decides_at_its_ticks_only() -> None:
    rule = Knative()
    assert wanted(rule, demand(), 0.0) == 0
    assert wanted(rule, demand(area=20.0), 1.0) == 0
    assert wanted(rule, demand(area=20.0), 2.0) == 15
