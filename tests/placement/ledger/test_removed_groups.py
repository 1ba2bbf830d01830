"""Groups that somebody wants gone."""

from __future__ import annotations

from headgate.placement.amounts import amounts
from headgate.placement.ledger import PlacementLedger
from headgate.placement.outbox import CreateGroup, RemoveGroup, StartWork
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import NodeView
from headgate.placement.request import PlacementRequest
from tests.placement.ledger.world import World, pool, reserved, rules


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


def test_a_group_whose_node_died_while_it_was_made_is_handed_to_nobody() -> None:
    ledger = PlacementLedger(LedgerSettings(), rules())
    here, there = NodeView("n1", amounts(cpu=8)), NodeView("n2", amounts(cpu=8))
    ledger.see_nodes([here, there], 0.0)
    ledger.open_pool(pool(cpu=16, max_dynamic=4), 0.0)
    ledger.submit(PlacementRequest("a", "p", (amounts(cpu=4),)), "driver", 0.0)
    (create,) = ledger.decide(0.0)
    assert isinstance(create, CreateGroup)
    ledger.see_nodes([each for each in (here, there) if each.node_id not in create.nodes], 1.0)
    ledger.group_created(create.group_id, create.epoch, create.nodes, 1.0)
    (start,) = ledger.decide(1.0)
    assert isinstance(start, StartWork)
    ledger.work_lost("a", start.epoch, 1.0, "its node died")
    commands = ledger.decide(1.0)
    assert [type(each) for each in commands] == [RemoveGroup, CreateGroup]
    assert not set(create.nodes) & {node for each in commands if isinstance(each, CreateGroup) for node in each.nodes}
    ledger.validate()
