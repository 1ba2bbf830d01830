"""The bound and the policy that knows the future."""

from __future__ import annotations

import pytest

from headgate_replay.elastic import Call, Site, load_of, measured, played, ramp
from headgate_replay.elastic.bounds import Stretch, certain, least_worker_s, least_worker_s_but, needed
from headgate_replay.elastic.peers import Clairvoyant
from tests.replay.elastic.conftest import Plan, config


def two_bursts():
    """Four calls of 10 s at 0 s and at 100 s, for workers of two slots."""
    return load_of("bursts", [Call(at, 0.0, 10.0) for at in (0.0, 100.0) for _ in range(4)], slots=2, window_s=200.0)


def test_what_is_certain_to_run_shrinks_with_the_time_that_may_be_waited() -> None:
    load = load_of("one", [Call(5.0, 1.0, 3.0)], slots=2)
    assert certain(load, 0.0) == [Stretch(5.0, 9.0, 1)]
    assert certain(load, 1.5) == [Stretch(6.5, 9.0, 1)]
    assert certain(load, 4.0) == []


def test_workers_that_are_needed_are_rounded_up() -> None:
    running = [Stretch(0, 1, 1), Stretch(1, 2, 2), Stretch(2, 3, 3), Stretch(3, 4, 0)]
    assert needed(running, 2) == [Stretch(0, 2, 1), Stretch(2, 3, 2), Stretch(3, 4, 0)]


def test_a_gap_is_slept_through_where_that_is_cheaper_than_a_start() -> None:
    load = two_bursts()
    assert least_worker_s(load, start_s=5.0) == 200 + 2 * (10 + 5)
    assert least_worker_s(load, start_s=95.0) == 200 + 110 + 95
    assert least_worker_s(load, start_s=5.0, wait_s=4.0) == 200 + 2 * (6 + 5)
    assert least_worker_s(load, start_s=5.0, lowest=2) == 400


def test_a_bound_is_never_below_the_work() -> None:
    load = load_of("full", [Call(0.0, 0.0, 10.0)] * 4, slots=2, window_s=10.0)
    assert least_worker_s(load, start_s=0.0, wait_s=100.0) == load.work_s == 20.0


def test_those_who_may_wait_longer_are_taken_where_that_spares_most() -> None:
    calls = [Call(0.0, 0.0, 10.0) for _ in range(3)] + [Call(50.0, 0.0, 10.0) for _ in range(4)]
    load = load_of("odd", calls, slots=2, window_s=100.0)
    assert least_worker_s_but(load, share=0.0) == 100 + 10 + 10
    assert least_worker_s_but(load, share=1 / 7) == 100 + 10, "one call of 10 s spares the worker of the third"


@pytest.mark.parametrize("start_s", [1.0, 30.0])
def test_no_replay_in_which_nobody_waits_is_below_the_bound(start_s: float) -> None:
    load = ramp(seed=4, scale=0.05)
    for plan in (Clairvoyant(load, start_s=start_s, every_s=1.0, hold_s=5.0), Plan((0, 16))):
        outcome = played(load, plan, config(), Site(start_s=start_s, awake=16))
        figures = measured(load, outcome)
        assert figures.longest_s == 0.0
        assert figures.worker_s >= least_worker_s(load, start_s=start_s)


def test_whoever_knows_the_future_has_workers_ready_in_time_and_saves_most_of_them() -> None:
    load = ramp(seed=4, scale=0.05)
    policy = Clairvoyant(load, start_s=10.0, every_s=1.0, hold_s=16.0)
    figures = measured(load, played(load, policy, config(), Site(start_s=10.0, awake=2)))
    assert figures.p99_s == 0.0
    assert figures.cost < 2.0 < 16 * load.window_s / load.work_s
    policy.validate()


def test_slots_that_are_left_out_cost_waiting_and_save_workers() -> None:
    load = ramp(seed=4, scale=0.05)
    figures = []
    for short in (0, 6):
        policy = Clairvoyant(load, start_s=1.0, every_s=1.0, hold_s=7.0, short=short)
        figures.append(measured(load, played(load, policy, config(), Site())))
    assert figures[1].cost < figures[0].cost
    assert figures[1].p99_s > figures[0].p99_s
