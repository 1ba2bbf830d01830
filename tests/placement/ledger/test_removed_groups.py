"""Groups that somebody wants gone."""

from __future__ import annotations

from tests.placement.ledger.world import World, pool, reserved


def test_a_group_that_is_held_goes_when_its_work_ends() -> None:
    world = World()
    group_id = world.submit("a", 2).group_id
    assert world.ledger.remove_group(group_id, world.now)
    world.settle()
    assert world.running() == {"a"}
    world.end("a")
    world.settle()
    assert world.dynamic_groups() == []


def test_a_reserved_group_and_one_that_is_not_there_stay() -> None:
    world = World(pool(reserved=(reserved(),)))
    (kept,) = world.reserved_groups()
    assert not world.ledger.remove_group(kept, world.now)
    assert not world.ledger.remove_group("nobody's", world.now)
    world.settle()
    assert world.reserved_groups() == [kept]
