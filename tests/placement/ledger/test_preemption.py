"""Who is stopped for whom, what holds it up, and what victims keep."""

from __future__ import annotations

from headgate.placement.amounts import amounts
from headgate.placement.outbox import StopWork
from headgate.placement.pool import GroupState
from headgate.placement.request import Stage
from tests.placement.ledger.world import World, pool, rules


def test_nobody_of_the_same_priority_is_stopped() -> None:
    world = World()
    world.submit("one", 8, priority=5)
    assert world.submit("two", 8, priority=5).stage is Stage.WAITING
    assert not world.stopped()


def test_a_label_that_outranks_stops_at_equal_priority() -> None:
    world = World()
    world.submit("rollout", 8, priority=5, role="rollout")
    world.submit("train", 8, priority=5, role="train")
    assert world.running() == {"train"}


def test_labels_never_stop_each_other_in_a_circle() -> None:
    world = World()
    for role, priority in (("rollout", 5.0), ("reward", 5.1), ("train", 5.2)):
        world.submit(role, 8, priority=priority, role=role)
        world.wait(10)
    assert world.running() == {"train"}
    assert world.stopped() == ["rollout", "reward"]
    for name in ("train", "reward", "rollout"):
        world.end(name)
    assert {each.stage for each in world.ledger.requests.values()} == {Stage.DONE}
    assert len(world.stopped()) == 2


def test_young_work_is_spared_until_it_ran_long_enough() -> None:
    world = World(preemption=rules(min_runtime_s=30))
    world.submit("low", 8, priority=1)
    world.submit("high", 8, priority=9)
    assert world.running() == {"low"}
    assert world.ledger.outbox.next_wake() is not None
    world.wait(30)
    assert world.running() == {"high"}


def test_a_victim_stands_again_where_it_stood_and_runs_again() -> None:
    world = World(preemption=rules(short_first=0))
    before = world.submit("low", 8, priority=3).order
    world.now = 10
    world.submit("later", 8, priority=3)
    world.submit("high", 8, priority=9)
    victim = world.request("low")
    assert (victim.submitted_at, victim.order, victim.preemptions, victim.losses) == (0, before, 1, 0)
    world.end("high")
    assert world.running() == {"low"}


def test_work_that_was_stopped_too_often_is_left_alone() -> None:
    world = World(preemption=rules(min_runtime_s=0, max_preemptions=1, pair_interval_s=0))
    world.submit("low", 8, priority=3)
    world.submit("high", 8, priority=9)
    world.end("high")
    assert world.submit("higher", 8, priority=9.5).stage is Stage.WAITING
    assert world.running() == {"low"}


def test_a_share_of_the_pool_is_stopped_in_a_while_and_no_more() -> None:
    world = World(preemption=rules(budget_share=0.5, budget_interval_s=10))
    for number in range(8):
        world.submit(f"low-{number}", 1, priority=1)
    for number in range(8):
        world.submit(f"high-{number}", 1, priority=9)
    assert len(world.stopped()) == 4
    world.wait(10)
    assert len(world.stopped()) == 8


def test_a_storm_of_urgent_work_loses_nobody() -> None:
    world = World(preemption=rules(budget_share=0.5, budget_interval_s=10, pair_interval_s=5))
    low = [f"low-{number}" for number in range(8)]
    for name in low:
        world.submit(name, 1, priority=1)
    for number in range(40):
        world.submit(f"urgent-{number}", 1, priority=9)
        world.wait(2)
        for name in sorted(world.running() - set(low)):
            world.end(name)
    while running := sorted(world.running()):
        world.end(running[0])
    assert {each.stage for each in world.ledger.requests.values()} == {Stage.DONE}
    assert max(world.request(name).preemptions for name in low) <= 3


def test_the_room_of_victims_goes_to_their_preemptor_and_nobody_else() -> None:
    world = World()
    world.submit("low", 8, priority=3)
    world.ask("high", 8, priority=9, preemptible=False)
    (stop,) = world.decide()
    assert isinstance(stop, StopWork)
    world.ask("sneaker", 1, priority=9.5)
    world.decide()
    world.do(stop)
    world.pending.remove(stop)
    world.settle()
    assert world.running() == {"high"}
    assert world.stage("sneaker") is Stage.WAITING


def test_the_group_of_a_victim_is_given_on_only_once_it_was_seen_dead() -> None:
    world = World()
    low = world.submit("low", 8, priority=3)
    world.ask("high", 8, priority=9)
    world.decide()
    world.ledger.work_stopped("low", low.epoch, world.now, saved=False, dead=False)
    assert not world.decide()
    assert world.ledger.groups[low.group_id].state is GroupState.QUARANTINED
    world.pending.clear()
    world.cluster.left("low", low.epoch)
    world.ledger.work_stopped("low", low.epoch, world.now, saved=False, dead=True)
    world.settle()
    assert world.running() == {"high"}


def test_a_pool_keeps_as_many_of_a_label_as_it_wants() -> None:
    world = World(pool(min_available={"role=rollout": 1}))
    for name in ("one", "two"):
        world.submit(name, 4, priority=3, role="rollout")
    world.submit("high", 4, priority=9)
    world.submit("higher", 4, priority=9)
    assert len(world.running() & {"one", "two"}) == 1


def test_work_of_other_pools_is_stopped_only_where_rules_allow_it() -> None:
    pools = (pool("a", cpu=8), pool("b", cpu=8))
    for allowed in (False, True):
        world = World(*pools, preemption=rules(cross_pool=allowed))
        world.submit("low", 8, priority=1, pool="a")
        world.submit("high", 8, priority=9, pool="b")
        assert world.running() == ({"high"} if allowed else {"low"})


def test_a_protected_pool_is_left_alone() -> None:
    world = World(pool("a", protected=True), pool("b"), preemption=rules(cross_pool=True))
    world.submit("low", 8, priority=1, pool="a")
    world.submit("high", 8, priority=9, pool="b")
    assert world.running() == {"low"}


def test_several_are_stopped_for_a_gang() -> None:
    world = World(pool(cpu=16), nodes={"n0": amounts(cpu=8), "n1": amounts(cpu=8)})
    for number in range(4):
        world.submit(f"low-{number}", 4, priority=2)
    world.submit("gang", 8, members=2, priority=9, strategy="STRICT_SPREAD")
    assert world.running() == {"gang"}
    assert len(world.stopped()) == 4


def test_of_two_holders_that_give_back_the_same_lease_one_is_told_it_was_given_back() -> None:
    world = World()
    one = world.submit("one", 8)
    first, second = (world.ledger.complete("one", one.lease_id, one.epoch, world.now) for _ in range(2))
    assert (first.value, second.value) == ("released", "duplicate")
    world.settle()
    assert world.ledger.complete("one", "other", one.epoch, world.now).value == "stale"
    assert world.stage("one") is Stage.DONE


def test_whoever_waits_for_a_victim_takes_a_group_that_gets_free_before() -> None:
    world = World(pool(cpu=4, reuse=True), nodes={"n0": amounts(cpu=4)})
    for name in ("stays", "goes"):
        world.submit(name, 2, priority=3)
    world.ledger.submit(world.ask("high", 2, priority=9), "driver", world.now)
    commands = world.ledger.decide(world.now)  # the stop of a victim, which nobody has carried out yet
    (victim,) = (command.request_id for command in commands)
    other = world.request("goes" if victim == "stays" else "stays")
    world.ledger.work_ended(other.request_id, other.epoch, world.now)
    world.ledger.decide(world.now)
    assert world.request("high").group_id != world.request(victim).group_id
    assert world.stage("high") is Stage.PLACING
