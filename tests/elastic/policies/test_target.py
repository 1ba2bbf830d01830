"""The proportional policy."""

from __future__ import annotations

import pytest

from headgate.elastic.policies import ForDue, Target
from tests.elastic.policies.conftest import Flow, config, demand, wanted


def test_the_load_is_the_target_share_of_capacity() -> None:
    assert Flow(Target(config(target_load=0.7))).run(16.0, 60.0)[-1] == 6  # 4 workers' worth / 0.7
    assert Flow(Target(config(target_load=1.0))).run(16.0, 60.0)[-1] == 4


def test_a_rise_of_the_panic_window_is_followed_at_once() -> None:
    flow = Flow(Target(config(panic_window=6.0, target_load=1.0)))
    flow.run(4.0, 120.0)
    assert flow.run(20.0, 10.0)[-1] == 5


def test_a_request_that_waits_counts_at_once() -> None:
    flow = Flow(Target(config(target_load=1.0)))
    flow.run(2.0, 120.0)
    assert wanted(flow.policy, demand(running=8, waiting=24, area=flow.area), flow.now + 0.25) == 4


def test_a_fall_is_followed_after_the_stable_window_and_no_sooner() -> None:
    flow = Flow(Target(config(stable_window=60.0)))
    before = flow.run(20.0, 120.0)[-1]
    after = flow.run(2.0, 90.0)
    assert after[:11] == [before] * 11
    assert after[-1] == 1


def test_workers_that_are_there_at_the_start_stay_for_a_window() -> None:
    flow = Flow(Target(config(stable_window=60.0)), awake=8)
    found = flow.run(1.0, 90.0)
    assert found[10] == 8
    assert found[-1] == 1


def test_a_backlog_never_puts_a_worker_to_sleep() -> None:
    policy = Target(config())
    for now in range(300):
        told = demand(running=32, waiting=500 - now, active=4, area=float(now) * 66)
        assert wanted(policy, told, float(now)) >= 4


@pytest.mark.parametrize(
    ("due", "others_wait", "active", "expected"),
    [
        (9, "", 0, (2, False)),
        (9, "why", 2, (2, False)),  # what is due keeps its place
        (0, "", 2, (2, False)),  # nothing is due: those that are there stay for the window, ...
        (0, "", 0, (0, False)),  # none is woken for nothing, and what starts is no reason to, ...
        (0, "why", 2, (0, True)),  # and others have the place at once
    ],
)
def test_workers_for_what_is_due(due: int, others_wait: str, active: int, expected: tuple[int, bool]) -> None:
    policy = ForDue(Target(config(stable_window=60.0)), lambda: due, lambda: others_wait)
    policy.decide(demand(active=2, lowest=0), 0.0)
    desired = policy.decide(demand(active=active, starting=1, lowest=0), 1.0)
    assert (desired.workers, desired.at_once) == expected
