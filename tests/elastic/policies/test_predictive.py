"""The predictive policy: what it learns, queue, and when it lets workers sleep."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.policies import Predictive
from headgate.elastic.policies.rehearsal import Outlook, queue_slots
from tests.elastic.policies.conftest import Flow, config, demand, wanted


def settled(wait_price: float, rate: float = 16.0, start_s: float = 1.0) -> int:
    flow = Flow(Predictive(config(wait_price=wait_price)), awake=8, start_s=start_s)
    return flow.run(rate, 1800.0)[-1]


@pytest.mark.parametrize("start_s", [1.0, 30.0])
def test_caution_that_buys_nothing_is_learnt_away(start_s: float) -> None:
    assert settled(2.0, start_s=start_s) <= 5  # 16 per second x 2 s = 32 slots, and no chance in when they come


def test_the_dearer_waiting_is_the_longer_workers_are_held() -> None:
    def awake(wait_price: float) -> int:
        flow = Flow(Predictive(config(wait_price=wait_price)), start_s=30.0)
        for _ in range(10):
            flow.run(2.0, 120.0)
            flow.run(24.0, 40.0)
        return min(flow.run(2.0, 120.0))

    assert awake(0.0) < awake(8.0)


@pytest.mark.parametrize(("start_s", "held_s"), [(1.0, 45.0), (30.0, 45.0), (120.0, 95.0), (240.0, 185.0)])
def test_where_starts_are_slow_workers_are_held_for_three_quarters_of_one(start_s: float, held_s: float) -> None:
    flow = Flow(Predictive(config(wait_price=0)), awake=8, start_s=start_s)
    for _ in range(20):
        flow.run(16.0, 300.0)
        flow.run(2.0, 900.0)
    before = flow.run(16.0, 300.0)[-1]
    assert 5.0 * flow.run(2.0, 900.0).count(before) == held_s


def test_the_workers_of_a_single_flood_sleep_soon_while_those_of_bursts_that_return_are_held() -> None:
    flow = Flow(Predictive(config()), start_s=120.0)
    bursts = [(4.0, 240.0), (12.0, 60.0)]
    for rate, lasts_s in bursts * 10:
        flow.run(rate, lasts_s)
    flow.run(28.0, 240.0)
    awake = [workers for rate, lasts_s in bursts * 12 for workers in flow.run(rate, lasts_s)]
    assert 5.0 * sum(workers >= 7 for workers in awake) <= 600.0
    assert min(awake) == 4


def test_a_first_pause_of_minutes_is_no_reason_to_follow_another_rule_before_a_start_was_measured() -> None:
    def said(*, has_started: bool) -> str:
        flow = Flow(Predictive(config()), awake=8, start_s=30.0, has_started=has_started)
        for _ in range(5):
            flow.run(0.2, 250.0)
            flow.run(24.0, 50.0)
        return flow.because

    assert "by the past load" in said(has_started=False)
    assert "for 95% of the time" in said(has_started=False)
    assert "for 95% of the time" not in said(has_started=True)


def test_workers_that_are_not_needed_for_an_hour_sleep_although_no_start_was_measured() -> None:
    flow = Flow(Predictive(config()), awake=8, start_s=30.0, has_started=False)
    assert flow.run(28.0, 3600.0)[-1] >= 7
    assert flow.run(0.2, 3600.0)[-1] <= 2


def test_a_queue_is_met_by_the_load_of_now_where_a_start_is_longer_than_a_request() -> None:
    risen = Outlook(present=32.0, level=8.0, past={})
    told = demand(running=8, waiting=24, start_s=30.0)
    assert queue_slots(24, risen, 1, told) == pytest.approx(24 / 15 + 32 - 8)
    assert queue_slots(24, risen, 1, demand(running=8, waiting=24, start_s=1.0)) == 24
    assert queue_slots(0, risen, 1, told) == 0


def test_each_request_of_a_queue_gets_a_slot_before_a_start_was_measured() -> None:
    told = demand(running=8, waiting=24, start_s=30.0, has_started=False)
    assert queue_slots(24, Outlook(present=8.0, level=8.0, past={}), 1, told) == 24


def test_headroom_is_read_as_a_price() -> None:
    assert [config(headroom=each).wait_price for each in (0, 1, 2.0)] == [0.5, 2.0, 8.0]
    assert config(headroom=3, wait_price=1.0).wait_price == 1.0
    with pytest.raises(InvalidElasticError, match=r"headroom must be between 0 and 20 \(got 'much'\)"):
        config(headroom="much")


@pytest.mark.parametrize("start_s", [1.0, 30.0])
def test_requests_of_others_get_slots(start_s: float) -> None:
    policy = Predictive(config())
    assert wanted(policy, demand(running=20, foreign=20, arrived=0, service_s=2.0, start_s=start_s), 1.0) == 3


def test_before_any_request_has_ended_there_is_a_slot_for_each() -> None:
    policy = Predictive(config())
    assert wanted(policy, demand(running=8, waiting=17, arrived=25, service_s=0.0), 1.0) == 4


def test_each_request_of_a_backlog_gets_a_slot_where_a_start_is_shorter_than_a_request() -> None:
    policy = Predictive(config(wait_price=0.0))
    policy.decide(demand(), 0.0)
    assert wanted(policy, demand(running=8, waiting=48, arrived=0, service_s=20.0), 100.0) >= 5


def test_a_queue_that_will_be_gone_before_a_worker_has_started_wakes_none() -> None:
    policy = Predictive(config(wait_price=0.0))
    assert wanted(policy, demand(running=13, waiting=3, active=2, start_s=30.0), 0.0) == 2


def test_workers_that_start_are_not_asked_for_again() -> None:
    flow = Flow(Predictive(config()), start_s=30.0)
    flow.run(2.0, 60.0)
    told = {"running": 8, "waiting": 40, "arrived": 200, "start_s": 30.0}
    first = wanted(flow.policy, demand(**told), flow.now + 2.5)
    again = wanted(flow.policy, demand(**told, starting=first - 1), flow.now + 2.75)
    assert first > 1
    assert again <= first


def test_a_step_to_four_workers_is_answered_within_a_second() -> None:
    flow = Flow(Predictive(config()))
    flow.run(0.5, 120.0)
    assert wanted(flow.policy, demand(running=8, waiting=24, arrived=92), flow.now + 1.0) >= 4


def test_a_rise_is_met_before_it_is_there() -> None:
    flow = Flow(Predictive(config()), start_s=3.0)
    for second in range(0, 300, 5):
        now_and_here = flow.run(2.0 + second * 0.1, 5.0)[-1]
    assert now_and_here * 8 >= (2.0 + 300 * 0.1 + 3 * 0.1) * 2.0


def test_workers_sleep_only_when_the_most_of_twice_the_stable_window_needed_none_of_them() -> None:
    flow = Flow(Predictive(config(stable_window=60.0)))
    before = flow.run(24.0, 300.0)[-1]
    after = flow.run(4.0, 240.0)
    assert after[:23] == [before] * 23
    assert after[-1] < before / 2


@pytest.mark.parametrize("panic_window", [1.0, 6.0])
def test_workers_that_are_there_at_the_start_stay_for_a_minute(panic_window: float) -> None:
    flow = Flow(Predictive(config(panic_window=panic_window)), awake=8)
    assert set(flow.run(1.0, 60.0)) == {8}
    assert flow.run(1.0, 10.0)[-1] == 1


def test_a_pool_that_nobody_asks_sleeps_after_the_first_minute() -> None:
    policy = Predictive(config(min_workers=0))
    assert [wanted(policy, demand(active=4, service_s=0.0, lowest=0), now) for now in (0.0, 30.0, 61.0)] == [4, 4, 0]


@pytest.mark.parametrize("start_s", [1.0, 30.0])
def test_a_load_that_has_ended_keeps_no_worker_for_ever(start_s: float) -> None:
    policy = Predictive(config(min_workers=0))
    awake = 4
    for turn in range(1200):
        arrived, running = min(turn, 60) * 8, 8 if turn < 60 else 0
        told = demand(running=running, arrived=arrived, active=awake, start_s=start_s, lowest=0, service_s=5.0)
        awake = wanted(policy, told, 5.0 * turn)
    assert awake == 0


def test_a_load_between_two_numbers_of_workers_does_not_go_back_and_forth() -> None:
    flow = Flow(Predictive(config(stable_window=10.0)))
    found = []
    for turn in range(40):
        found += flow.run(14.0 if turn % 2 else 13.0, 30.0)
    changes = sum(a != b for a, b in pairwise(found[10:]))
    assert changes <= 1


def test_workers_that_are_in_use_are_not_put_to_sleep_whatever_the_forecast() -> None:
    policy = Predictive(config(stable_window=10.0))
    for now in range(0, 300, 5):  # requests that came long ago and take for ever
        found = wanted(policy, demand(running=60, arrived=60, active=8, service_s=20.0), float(now))
    assert found >= 8


def test_it_says_why() -> None:
    flow = Flow(Predictive(config()))
    flow.run(2.0, 60.0)
    said = flow.policy.decide(demand(running=8, waiting=30, arrived=200), flow.now + 1).because
    assert "by the present load" in said
    assert "; 8 are awake" in said
    assert "for the queue" in said


@given(
    st.lists(
        st.tuples(
            st.floats(0.05, 20.0),
            st.integers(0, 60),
            st.integers(0, 200),
            st.integers(0, 50),
            st.integers(1, 10),
            st.integers(0, 6),
            st.sampled_from([0.0, 0.5, 20.0]),
            st.sampled_from([0.0, 1.0, 30.0]),
        ),
        max_size=30,
    )
)
@pytest.mark.parametrize("wait_price", [0.0, 8.0])
def test_whatever_happens_workers_that_are_needed_now_stay(wait_price: float, steps: list[tuple[float, ...]]) -> None:
    policy = Predictive(config(wait_price=wait_price))
    now, arrived = 0.0, 0
    for gap_s, more, running, waiting, active, starting, service_s, start_s in steps:
        now, arrived = now + gap_s, arrived + int(more)
        told = demand(
            running=min(running, active * 8),
            waiting=waiting,
            arrived=arrived,
            active=active,
            starting=starting,
            service_s=service_s,
            start_s=start_s,
        )
        assert wanted(policy, told, now) >= min(told.awake, math.ceil(told.worth))
