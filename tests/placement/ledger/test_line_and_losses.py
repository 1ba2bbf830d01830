"""The order of the line, what goes around its head, and what is lost and comes back."""

from __future__ import annotations

from dataclasses import replace

from headgate.placement.amounts import amounts
from headgate.placement.outcomes import LedgerSettings, PoolOpened
from headgate.placement.pool import GroupState
from headgate.placement.request import Stage
from tests.placement.ledger.world import World, pool, reserved, rules

TWO = {"n0": amounts(cpu=8), "n1": amounts(cpu=8)}
NOBODY_IS_STOPPED = rules(same_pool_threshold=100, cross_pool_threshold=100, short_first=0)


def test_higher_bands_go_first_and_then_who_came_first() -> None:
    world = World(preemption=NOBODY_IS_STOPPED)
    world.submit("runs", 8)
    for name, priority in (("a", 3), ("b", 3), ("c", 4)):
        world.submit(name, 8, priority=priority)
    for name in ("runs", "c", "a", "b"):
        assert world.running() == {name}
        world.end(name)


def test_waiting_raises_nobody_above_its_band() -> None:
    world = World(preemption=NOBODY_IS_STOPPED)
    world.submit("runs", 8)
    world.submit("old", 8, priority=3.2)
    world.wait(10 * 3600)
    world.submit("new", 8, priority=3.9)
    world.submit("higher", 8, priority=4)
    for name in ("runs", "higher", "old"):
        assert world.running() == {name}
        world.end(name)


def test_work_that_was_stopped_too_often_is_a_band_higher() -> None:
    world = World(preemption=rules(max_preemptions=1, pair_interval_s=0))
    world.submit("low", 8, priority=3)
    world.submit("high", 8, priority=9)
    world.submit("between", 8, priority=3.5)
    world.end("high")
    assert world.running() == {"low"}


def test_short_work_goes_around_a_gang_and_long_work_does_not() -> None:
    world = World(preemption=NOBODY_IS_STOPPED)
    world.submit("runs", 6, estimated_duration_s=100)
    world.submit("gang", 4, members=2, priority=9, estimated_duration_s=10)
    world.submit("long", 2, priority=1, estimated_duration_s=500)
    world.submit("unknown", 2, priority=1)
    assert "gang" in " ".join(each.says for each in world.why("long").rejected)
    world.submit("short", 2, priority=1, estimated_duration_s=50)
    assert world.running() == {"runs", "short"}
    world.end("short")
    world.end("runs")
    assert world.running() == {"gang"}


def test_what_the_shadow_leaves_over_may_be_taken_for_long() -> None:
    world = World(pool(cpu=16), nodes=TWO, preemption=NOBODY_IS_STOPPED)
    world.submit("runs", 8, estimated_duration_s=100)
    world.submit("also", 6, estimated_duration_s=900)
    world.submit("wide", 8, priority=9)
    world.submit("long", 2, priority=1)
    assert "long" in world.running()


def test_who_withdraws_from_the_head_of_the_line_lets_others_go() -> None:
    world = World(preemption=NOBODY_IS_STOPPED)
    world.submit("runs", 6)
    world.submit("head", 8, priority=9)
    world.submit("small", 2, priority=1)
    assert world.running() == {"runs"}
    world.ledger.withdraw("head", world.now)
    world.settle()
    assert world.running() == {"runs", "small"}


def test_the_first_reason_for_which_work_is_withdrawn_is_kept() -> None:
    world = World()
    world.submit("runs", 6)
    assert world.ledger.withdraw("runs", world.now, "cancelled")
    assert not world.ledger.withdraw("runs", world.now, "its driver ended"), "it is being stopped"
    assert world.ledger.requests["runs"].note == "cancelled"


def test_why_says_how_many_are_ahead_and_what_each_step_lacks() -> None:
    world = World()
    world.submit("runs", 8)
    world.submit("first", 8)
    world.submit("second", 8)
    why = world.why("second")
    assert (why.stage, why.ahead) == (Stage.WAITING, 1)
    assert [each.step for each in why.rejected][-1] == "preemption"
    assert all(each.says for each in why.rejected)
    assert world.ledger.why("nobody", world.now) is None


def test_lost_work_runs_again_until_it_was_lost_too_often() -> None:
    world = World(settings=LedgerSettings(max_losses=2, driver_lease_s=1e9))
    world.submit("one")
    world.lose("one")
    assert world.running() == {"one"}
    world.lose("one")
    assert world.running() == set(), "where it died twice it may die again: it is given a moment"
    world.wait(1.0)
    assert world.running() == {"one"}
    world.lose("one")
    assert world.stage("one") is Stage.FAILED
    assert "3 times" in world.request("one").note


def test_a_node_that_comes_back_in_time_costs_nothing() -> None:
    world = World(pool(cpu=16), nodes=TWO)
    world.submit("one", 8)
    world.submit("two", 8)
    world.see({"n0": amounts(cpu=8)})
    world.wait(4)
    world.see(TWO)
    world.wait(100)
    assert world.running() == {"one", "two"}
    assert world.request("one").losses == world.request("two").losses == 0


def test_a_node_that_stays_away_loses_its_work_which_waits_for_room() -> None:
    world = World(pool(cpu=16), nodes=TWO)
    world.submit("one", 8)
    world.submit("two", 8)
    world.see({"n0": amounts(cpu=8)})
    world.wait(5)
    assert len(world.running()) == 1
    assert sum(world.request(name).losses for name in ("one", "two")) == 1
    world.see(TWO)
    world.settle()
    assert world.running() == {"one", "two"}


def test_a_lost_reserved_group_is_made_again() -> None:
    world = World(pool(reserved=(reserved(2),)))
    (before,) = world.reserved_groups()
    world.cluster.groups[before].occupant = None
    world.ledger.group_lost(before, "it is not there", world.now)
    world.settle()
    (after,) = world.reserved_groups()
    assert after != before
    assert world.ledger.groups[after].state is GroupState.FREE


def test_a_reserved_group_that_could_not_be_made_is_tried_again() -> None:
    world = World()
    world.ledger.change_pool(pool(reserved=(reserved(2),)), world.now)
    (create,) = world.decide()
    world.pending.clear()
    world.cluster.groups.clear()
    world.ledger.group_failed(create.group_id, create.epoch, "no room", world.now)  # type: ignore[union-attr]
    world.settle()
    assert not world.reserved_groups()
    world.wait(1)
    assert len(world.reserved_groups()) == 1


def test_the_work_of_a_driver_that_is_not_heard_of_is_withdrawn() -> None:
    world = World(settings=LedgerSettings(driver_lease_s=15))
    world.submit("one", 8)
    world.submit("two", 8)
    world.wait(15)
    assert {world.stage("one"), world.stage("two")} == {Stage.WITHDRAWN}


def test_the_work_of_a_lost_driver_goes_on_where_that_is_wanted() -> None:
    world = World(settings=LedgerSettings(driver_lease_s=15, keep_work_of_lost_drivers=True))
    world.submit("one", 8)
    world.wait(60)
    assert world.running() == {"one"}


def test_leases_of_a_lost_driver_end_also_where_its_work_goes_on() -> None:
    """A lease whose driver was killed would hold its group for ever; one that waits would be granted to nobody."""
    world = World(settings=LedgerSettings(driver_lease_s=15, keep_work_of_lost_drivers=True))
    world.submit("work", 2)
    world.submit("held", 6, is_lease=True)
    world.submit("waiting", 6, is_lease=True)
    world.wait(15)
    assert (world.running(), world.stage("held"), world.stage("waiting")) == ({"work"}, *2 * (Stage.WITHDRAWN,))


def test_an_open_pool_tells_in_what_another_form_of_it_differs() -> None:
    world = World()
    assert world.ledger.open_pool(pool(), world.now) == PoolOpened(pool())
    differs = world.ledger.open_pool(replace(pool(), protected=True, max_dynamic=3), world.now)
    assert differs == PoolOpened(pool(), ("max_dynamic", "protected"))
    assert world.ledger.pools["p"] == pool()


def test_a_reserved_group_can_be_given_up_twice_while_it_is_held() -> None:
    world = World(pool(reserved=(reserved(2),)))
    world.submit("high", 2, priority=9)
    for _ in range(2):
        world.ledger.change_pool(pool(), world.now)
        world.settle()
    assert world.running() == {"high"}
    world.end("high")
    assert not world.reserved_groups()


def test_running_work_is_kept_when_the_ledger_is_restored_and_the_line_with_it() -> None:
    world = World(pool(reserved=(reserved(2),)))
    world.submit("runs", 6)
    world.submit("waits", 6)
    world.restart()
    world.settle()
    assert world.running() == {"runs"}
    assert world.stage("waits") is Stage.WAITING
    world.end("runs")
    assert len(world.reserved_groups()) == 1


def test_a_late_report_of_a_former_start_is_not_taken_for_the_next() -> None:
    world = World(pool(reuse=False))
    former = world.submit("one", 8).epoch
    world.cluster.left("one", former)
    world.ledger.work_lost("one", former, world.now, "its process died")
    world.decide()
    while world.stage("one") is not Stage.PLACING:
        world.do(world.pending.pop(0))
        world.decide()
    world.ledger.work_started("one", former, world.now)
    assert world.stage("one") is Stage.PLACING
