"""What pools have of their quota in use, and why a free group is not given to work that waits."""

from __future__ import annotations

from headgate.placement.amounts import Amounts, amounts
from headgate.placement.backfill import PoolUsage
from tests.placement.ledger.world import World, pool, reserved


def _used(world: World, name: str = "p") -> PoolUsage:
    return next(each for each in world.ledger.usage(world.now) if each.pool == name)


def _split(used: PoolUsage) -> tuple[Amounts, Amounts, Amounts]:
    return used.reserved, used.lent, used.dynamic


def test_quota_in_use_is_told_by_the_kind_of_group_and_free_groups_are_not_charged() -> None:
    world = World(pool(reserved=(reserved(2), reserved(2))))
    assert _used(world).in_use == amounts()
    world.submit("trainer", 2, priority=9)
    world.submit("own", 1.5, priority=3)
    world.submit("loan", 2, priority=3)
    world.submit("lent", 1, priority=3)
    used = _used(world)
    assert used.quota == amounts(cpu=8)
    assert _split(used) == (amounts(cpu=2), amounts(cpu=2), amounts(cpu=3.5))
    assert used.in_use == world.ledger.holdings.held["p"]
    world.end("own")
    assert _split(_used(world)) == (amounts(cpu=2), amounts(cpu=2), amounts(cpu=2))
    assert _used(world).not_given == ()


def test_work_that_waits_beside_a_free_group_is_told_why_in_the_words_of_its_own_explanation() -> None:
    world = World(pool(cpu=3, reserved=(reserved(2),), max_dynamic=1))
    world.submit("first", 2, priority=3)
    world.submit("second", 2, priority=3)
    world.submit("third", 2, priority=3)  # of the second's kind: not said twice
    (told,) = _used(world).not_given
    (free,) = [group.group_id for group in world.ledger.groups.values() if group.state == "free"]
    assert (told.request_id, told.group_ids) == ("second", (free,))
    assert told.says == "pool p has 1 CPU of its quota left; this needs 2 CPU"
    why = world.ledger.why("second", world.now)
    assert why is not None
    assert told.says in {each.says for each in why.rejected if each.step == "reserved_group_on_loan"}


def test_a_free_group_that_is_too_small_or_not_lent_is_told_as_well() -> None:
    world = World(
        pool("small", 3, reserved=(reserved(1),), max_dynamic=1),
        pool("kept", 3, reserved=(reserved(1),), max_dynamic=1, lend_reserved=False),
    )
    for name, wants, priority in (("small", 2, 9), ("kept", 1, 3)):
        for number in range(2):
            world.submit(f"{name}{number}", wants, pool=name, priority=priority)
    says = {told.request_id: told.says for used in world.ledger.usage(world.now) for told in used.not_given}
    assert says == {
        "small1": "no idle group is large enough",
        "kept1": "pool kept does not lend its reserved groups",
    }
