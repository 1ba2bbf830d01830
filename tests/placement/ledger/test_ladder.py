"""Each step of the ladder, in the order in which they are tried."""

from __future__ import annotations

import pytest

from headgate.placement.amounts import amounts
from headgate.placement.errors import CannotFitError, UnknownPoolError
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.request import Stage
from tests.placement.ledger.world import World, pool, reserved, rules


def test_work_by_right_takes_the_reserved_group() -> None:
    world = World(pool(reserved=(reserved(2),)))
    world.submit("high", 2, priority=8.0)
    assert world.step("high") == "reserved_group"
    assert world.request("high").group_id in world.reserved_groups()


def test_other_work_leaves_the_reserved_group_where_there_is_room_for_a_new_one() -> None:
    world = World(pool(reserved=(reserved(2),)))
    world.submit("low", 2, priority=7.9)
    assert world.step("low") == "new_group"


def test_an_idle_group_is_used_again_and_not_made_anew() -> None:
    world = World()
    first = world.submit("first", 2).group_id
    world.end("first")
    second = world.submit("second", 2)
    assert (world.step("second"), second.group_id) == ("idle_group", first)


def test_the_snuggest_idle_group_is_taken() -> None:
    world = World()
    large = world.submit("large", 3).group_id
    small = world.submit("small", 2).group_id
    world.end("large")
    world.end("small")
    assert world.submit("next", 2).group_id == small != large


def test_an_idle_group_that_is_much_too_large_is_left_while_nodes_have_room() -> None:
    world = World()
    world.submit("large", 4)
    world.end("large")
    world.submit("small", 1)
    assert world.step("small") == "new_group"


@pytest.mark.parametrize(("waits", "step"), [(False, "idle_group"), (True, "new_group")])
def test_an_idle_group_that_is_a_little_too_large_is_taken_only_while_nobody_else_waits(waits: bool, step: str) -> None:
    world = World()
    world.submit("beside", 3, preemptible=False)
    world.submit("large", 3)
    world.end("large")
    if waits:
        world.submit("wide", 8, priority=1, estimated_duration_s=10.0)
    world.submit("next", 2)
    assert world.step("next") == step


def test_without_reuse_a_group_goes_with_its_occupant() -> None:
    world = World(pool(reuse=False))
    world.submit("one", 2)
    world.end("one")
    assert not world.dynamic_groups()


def test_an_idle_group_is_removed_after_a_while() -> None:
    world = World(settings=LedgerSettings(idle_group_s=60, driver_lease_s=1e9))
    world.submit("one", 2)
    world.end("one")
    world.wait(59)
    assert len(world.dynamic_groups()) == 1
    world.wait(1)
    assert not world.dynamic_groups()


def test_idle_groups_of_other_shapes_make_way() -> None:
    world = World()
    for name in ("a", "b"):
        world.submit(name, 4)
    for name in ("a", "b"):
        world.end(name)
    world.submit("wide", 6)
    assert world.step("wide") == "new_group_in_place_of_idle"
    assert world.running() == {"wide"}


def test_an_idle_reserved_group_is_lent_when_nothing_else_is_left() -> None:
    world = World(pool(cpu=8, reserved=(reserved(4),)))
    world.submit("low-1", 4, priority=3)
    low = world.submit("low-2", 4, priority=3)
    assert world.step("low-2") == "reserved_group_on_loan"
    assert low.on_loan


def test_a_pool_that_does_not_lend_keeps_its_reserved_group_idle() -> None:
    world = World(pool(cpu=8, reserved=(reserved(4),), lend_reserved=False))
    world.submit("low-1", 4, priority=3)
    assert world.submit("low-2", 4, priority=3).stage is Stage.WAITING


def test_work_that_may_not_be_stopped_gets_nothing_on_loan() -> None:
    world = World(pool(cpu=8, reserved=(reserved(4),)))
    world.submit("low-1", 4, priority=3)
    assert world.submit("low-2", 4, priority=3, preemptible=False).stage is Stage.WAITING


def test_a_loan_is_taken_back_at_once_however_young_the_work_is() -> None:
    world = World(
        pool(cpu=4, reserved=(reserved(4),)), nodes={"n0": amounts(cpu=4)}, preemption=rules(min_runtime_s=99)
    )
    world.submit("low", 4, priority=7.5)
    world.submit("high", 4, priority=8.0)
    assert world.running() == {"high"}
    assert world.request("low").preemptions == 1


def test_stopping_others_is_the_last_step() -> None:
    world = World()
    world.submit("low", 8, priority=3)
    world.submit("high", 8, priority=9)
    assert world.step("high") == "preemption"
    assert (world.running(), world.stage("low")) == ({"high"}, Stage.WAITING)


def test_the_quota_holds_although_nodes_have_room() -> None:
    world = World(pool(cpu=3))
    world.submit("one", 2)
    assert world.submit("two", 2).stage is Stage.WAITING
    assert "quota" in world.why("two").rejected[2].says


def test_a_request_larger_than_a_quota_that_was_lowered_says_so() -> None:
    world = World(pool(cpu=6))
    world.submit("one", 2)
    world.submit("big", 5, priority=3)
    world.ledger.change_pool(pool(cpu=3), world.now)
    world.settle()
    assert world.why("big").says == "big takes 5 CPU, more than the quota of pool p: 3 CPU"
    world.see({"n0": amounts(cpu=4)})
    world.ledger.change_pool(pool(cpu=6), world.now)
    world.settle()
    assert world.why("big").says == "big takes 5 CPU; the largest node has 4 CPU"


def test_no_more_dynamic_groups_are_made_than_the_pool_allows() -> None:
    world = World(pool(max_dynamic=1))
    world.submit("one")
    assert world.submit("two").stage is Stage.WAITING
    assert "max_dynamic" in " ".join(each.says for each in world.why("two").rejected)
    world.end("one")
    assert world.running() == {"two"}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"cpu": 9}, "quota"),
        ({"cpu": 5, "members": 2, "strategy": "STRICT_PACK"}, "could not carry them"),
        ({"cpu": 1, "members": 3, "strategy": "STRICT_SPREAD"}, "could not carry them"),
        ({"cpu": 1, "node_labels": {"zone": "moon"}}, "moon"),
        ({"cpu": 7, "priority": 3}, "under PACK beside the reserved groups"),
    ],
)
def test_what_can_never_fit_is_refused_at_once(wanted: dict[str, object], says: str) -> None:
    world = World(pool(cpu=8 if wanted["cpu"] != 5 else 12, reserved=(reserved(2),)))
    with pytest.raises(CannotFitError, match=says):
        world.ask("never", **wanted)  # type: ignore[arg-type]  # one of the rows above
    assert "never" not in world.ledger.requests


def test_a_request_for_a_pool_that_is_not_open_is_refused() -> None:
    with pytest.raises(UnknownPoolError, match=r"no open pool 'q' \(open: p\)"):
        World().ask("lost", pool="q")


def test_a_gang_lies_as_its_strategy_says() -> None:
    world = World(pool(cpu=16), nodes={"n0": amounts(cpu=8), "n1": amounts(cpu=8)})
    world.submit("packed", 2, members=3, strategy="STRICT_PACK")
    world.submit("spread", 2, members=2, strategy="STRICT_SPREAD")
    groups = world.ledger.groups
    assert len(set(groups[world.request("packed").group_id].nodes)) == 1
    assert len(set(groups[world.request("spread").group_id].nodes)) == 2


def test_a_gang_starts_whole_or_not_at_all() -> None:
    world = World()
    world.submit("one", 3)
    assert world.submit("gang", 2, members=3).stage is Stage.WAITING
    world.end("one")
    assert world.running() == {"gang"}


def test_labels_that_no_node_has_are_named() -> None:
    world = World()
    with pytest.raises(CannotFitError, match=r"wants a node with labels \{'zone': 'mars'\}, and none has them"):
        world.ledger.submit(world.ask("a", node_labels={"zone": "mars"}), "driver", world.now)
