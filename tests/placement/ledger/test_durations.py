"""How long work is likely to run, and what follows for its order and for what stops for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.placement.amounts import amounts
from headgate.placement.durations import BINS, MOST_KINDS, Durations, kind_of_work
from headgate.placement.request import Occupancy, PlacementRequest
from tests.placement.ledger.world import World, rules


def work(served_s: float = 0.0, told_s: float = 0.0, holder: str = "d", **labels: str) -> Occupancy:
    request = PlacementRequest("r", "p", (amounts(cpu=1),), labels=labels, estimated_duration_s=told_s)
    return Occupancy(request, holder, 0.0, 1, served_s=served_s)


def test_told_work_has_left_what_it_was_told_less_what_it_ran() -> None:
    durations = Durations()
    assert durations.left_s(work(told_s=100.0), 0.0) == 100.0
    assert durations.left_s(work(served_s=70.0, told_s=100.0), 0.0) == 30.0
    assert durations.left_s(work(served_s=400.0, told_s=100.0), 0.0) == 300.0


def test_unknown_work_has_the_more_left_the_more_it_ran() -> None:
    durations = Durations()
    left = [durations.left_s(work(served_s=2.0**power), 0.0) for power in range(2, 18)]
    assert left == sorted(left)
    assert left[-1] > 1_000 * left[0]


def test_work_is_likely_to_run_as_long_as_work_with_its_labels_did() -> None:
    durations = Durations()
    for _ in range(50):
        durations.learn(work(role="train"), 3_000.0)
        durations.learn(work(role="score"), 5.0)
    assert durations.left_s(work(role="score"), 0.0) < 16
    assert durations.left_s(work(role="train"), 0.0) > 10 * durations.left_s(work(role="score"), 0.0)
    # Near the length of its kind it is soon done; far beyond it nobody knows.
    assert durations.left_s(work(served_s=2_500.0, role="train"), 0.0) < 2_100
    assert durations.left_s(work(served_s=40_000.0, role="train"), 0.0) > 10_000


def test_work_without_labels_is_known_by_its_driver() -> None:
    assert kind_of_work(work(holder="a")) != kind_of_work(work(holder="b"))
    assert kind_of_work(work(holder="a", role="x")) == kind_of_work(work(holder="b", role="x"))


def test_what_is_remembered_is_bounded_and_the_latest_stays() -> None:
    durations = Durations()
    for number in range(MOST_KINDS + 5):
        changed = durations.learn(work(role=f"r{number}"), 10.0)
    assert changed == [kind_of_work(work(role=f"r{MOST_KINDS + 4}")), kind_of_work(work(role="r4"))]
    for _ in range(1_000):
        durations.learn(work(role="much"), 10.0)
        durations.left_s(work(role="never ran"), 0.0)
    durations.validate()


@given(st.lists(st.floats(0, 1e9), max_size=60), st.floats(0, 1e9))
def test_every_history_gives_a_positive_finite_length(took: list[float], served_s: float) -> None:
    durations = Durations()
    for each in took:
        durations.learn(work(), each)
    durations.validate()
    assert 0 < durations.left_s(work(served_s=served_s), 0.0) < 2.0 ** (BINS + 2)


def long_and_short(**more: Any) -> World:
    """Return a world full of work that has run for an hour and saved itself, beside shorter work that waits."""
    world = World(preemption=rules(**more))
    world.submit("long", 8, estimated_duration_s=7_200.0)
    world.now = 3_600.0
    world.ledger.saved("long", world.request("long").epoch, world.now)
    world.submit("short", 8, estimated_duration_s=60.0)
    return world


def test_long_work_stops_for_much_shorter_work_of_its_band_and_runs_again() -> None:
    world = long_and_short()
    assert world.running() == {"short"}
    assert world.request("long").served_s == 3_600.0
    assert world.request("long").preemptions == 0  # the limit counts who outranks it
    world.end("short")
    assert world.running() == {"long"}


def test_nobody_of_a_band_is_stopped_where_who_came_first_goes_first() -> None:
    assert long_and_short(short_first=0).running() == {"long"}


def test_work_that_waited_long_enough_is_passed_by_no_shorter_work() -> None:
    world = World()
    world.submit("before", 8, priority=9)
    world.submit("long", 8, estimated_duration_s=3_600.0)
    world.now = 11 * 3_600.0  # more than ten times what it is told to run: work that comes now stands behind it
    world.end("before")
    world.wait(60.0)
    world.ledger.saved("long", world.request("long").epoch, world.now)
    world.submit("short", 8, estimated_duration_s=60.0)
    assert world.running() == {"long"}


def test_work_that_never_saves_itself_is_not_stopped_for_its_length() -> None:
    world = World()
    world.submit("long", 8)
    world.now = 100_000.0
    world.submit("new", 8)
    assert world.running() == {"long"}


def test_shorter_work_of_a_band_goes_first() -> None:
    world = World()
    world.submit("runs", 8, priority=9)
    world.submit("long", 8, estimated_duration_s=1_000.0)
    world.submit("short", 8, estimated_duration_s=100.0)
    world.end("runs")
    assert world.running() == {"short"}


def test_other_rules_sort_those_who_wait() -> None:
    world = World()
    world.submit("runs", 8, priority=9)
    world.submit("long", 8, estimated_duration_s=1_000.0)
    world.submit("short", 8, estimated_duration_s=100.0)
    world.ledger.set_rules(rules(short_first=0))
    world.end("runs")
    assert world.running() == {"long"}


def test_what_was_learnt_outlives_the_ledger() -> None:
    world = World()
    world.submit("first", 8)
    world.now = 500.0
    world.end("first")
    before = dict(world.ledger.durations.counts)
    world.restart()
    assert dict(world.ledger.durations.counts) == before != {}


def test_a_gang_is_not_stopped_for_shorter_work_that_is_narrower() -> None:
    world = World(preemption=rules(max_preemptions=1))
    world.submit("gang", 4, members=2, estimated_duration_s=7_200.0)
    world.now = 3_600.0
    world.ledger.saved("gang", world.request("gang").epoch, world.now)
    world.submit("narrow", 4, estimated_duration_s=60.0)
    assert world.running() == {"gang"}
    world.submit("as wide", 8, estimated_duration_s=60.0)
    assert world.running() == {"as wide"}


def beside_a_gang_whose_turn_has_come(**more: Any) -> World:
    """Return a world in which work that was told nothing came after the turn of a gang that nobody is stopped for."""
    world = World(preemption=rules(same_pool_threshold=100, cross_pool_threshold=100))
    world.submit("runs", 6, estimated_duration_s=100_000.0)
    world.submit("gang", 4, members=2, priority=9, estimated_duration_s=100.0)
    world.wait(1_001.0)
    world.submit("late", 1, priority=1, **more)
    return world


def test_work_that_passed_a_gang_on_a_guess_stops_for_it_once_it_has_outrun_that() -> None:
    world = beside_a_gang_whose_turn_has_come()
    assert world.running() == {"runs", "late"}
    world.wait(500.0)
    assert world.running() == {"runs", "late"}  # it is in nobody's way
    world.end("runs")
    assert world.running() == {"gang"}
    assert world.stopped() == ["late"]
    world.end("gang")
    assert world.running() == {"late"}


def test_work_that_passed_a_gang_is_not_stopped_before_it_has_outrun_what_was_expected() -> None:
    world = beside_a_gang_whose_turn_has_come()
    world.wait(1.0)
    world.end("runs")
    assert world.running() == {"late"}


def test_work_that_could_not_be_stopped_for_a_gang_passes_it_until_its_turn_only() -> None:
    world = World(preemption=rules(same_pool_threshold=100, cross_pool_threshold=100))
    world.submit("runs", 6, estimated_duration_s=100_000.0)
    world.submit("gang", 4, members=2, priority=9, estimated_duration_s=100.0)
    world.submit("early", 1, priority=1, checkpoints=False)
    assert "early" in world.running()
    for more in ({"checkpoints": False}, {"preemptible": False}):
        assert beside_a_gang_whose_turn_has_come(**more).running() == {"runs"}


def test_statements_count_as_far_as_work_of_the_kind_ended_as_stated() -> None:
    durations = Durations()
    for _ in range(8):
        durations.learn(work(told_s=100.0, owner="true"), 100.0)
        liar = work(served_s=1_000.0, told_s=100.0, owner="false")
        while durations.has_outrun(liar, 0.0):
            durations.outrun(liar)
        durations.learn(liar, 1_000.0)
    assert durations.left_s(work(told_s=100.0, owner="true"), 0.0) == 100.0
    assert 1_000.0 < durations.left_s(work(told_s=100.0, owner="false"), 0.0) < 4_000.0
    for _ in range(40):
        durations.learn(work(told_s=100.0, owner="false"), 100.0)
    assert durations.left_s(work(told_s=100.0, owner="false"), 0.0) == 100.0  # who states truly again is believed again
    durations.validate()


def test_one_statement_in_four_may_fall_short_and_long_statements_earn_nothing() -> None:
    durations = Durations()
    for _ in range(12):
        durations.learn(work(told_s=10_000.0), 10.0)
    for _ in range(4):
        durations.outrun(work(told_s=10.0))
    assert durations.left_s(work(told_s=100.0), 0.0) == 100.0
    for _ in range(2):
        durations.outrun(work(told_s=10.0))
    assert durations.left_s(work(told_s=100.0), 0.0) > 100.0


def test_a_false_statement_costs_those_who_wait_of_its_kind_their_place_while_it_runs() -> None:
    world = World()
    world.submit("runs", 8, estimated_duration_s=10.0, labels={"owner": "false"})
    world.submit("false", 8, estimated_duration_s=10.0, labels={"owner": "false"})
    world.submit("true", 8, estimated_duration_s=30.0, labels={"owner": "true"})
    assert world.ledger.queue.ahead_of("true") == 1
    world.wait(51.0)  # twice what was stated and half a minute
    assert world.ledger.queue.ahead_of("true") == 0
    world.restart()
    assert world.ledger.queue.ahead_of("true") == 0
    world.wait(1.0)
    world.end("runs")
    assert world.running() == {"true"}


@pytest.mark.parametrize("told_s", [0.0, 1e-9, 365 * 86_400.0, 1e300])
def test_any_length_may_be_stated(told_s: float) -> None:
    world = World()
    world.submit("runs", 8, estimated_duration_s=told_s)
    world.submit("waits", 8, estimated_duration_s=told_s)
    world.wait(3_600.0)
    world.end("runs")
    assert world.running() == {"waits"}
    world.ledger.durations.validate()
