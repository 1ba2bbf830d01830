"""A pass over the line skips what it knows to be in vain, and decides as one that looks at everybody."""

from __future__ import annotations

from random import Random

import pytest

from headgate.core import events
from headgate.placement.amounts import amounts
from headgate.placement.backfill import Backfill
from headgate.placement.durations import Durations
from headgate.placement.outcomes import LedgerSettings, Offer, Rejected
from headgate.placement.pool import Pool
from headgate.placement.preemption import Prospect
from headgate.placement.queue import Queue
from headgate.placement.request import Occupancy, PlacementRequest
from tests.placement.ledger.world import World, pool, reserved, rules

NODES = {name: amounts(cpu=8, gpu=4) for name in ("n0", "n1", "n2")}
POOLS = (
    pool("a", cpu=24, gpu=12, reserved=(reserved(2, 1),), max_dynamic=None),
    pool("b", cpu=16, gpu=8, reserved=(reserved(2, 1),), lend_reserved=False),
)
_HOPE = Prospect({}, {}, (), stops=True, makes=True, until=float("inf"))


class EverybodyIsLookedAt(Backfill):
    """A pass that knows nothing of one request from another."""

    def _is_passed(self, request_id: str, number: int, now: float) -> bool:
        del request_id, number, now
        self._missed.clear()
        self._missed_beside.clear()
        return False

    def _prospect(self, request: Occupancy, pool: Pool, now: float) -> Prospect | None:
        del request, pool, now
        return _HOPE

    def _climb(self, request: Occupancy, pool: Pool, outlasts: tuple[bool, ...], now: float) -> Offer | list[Rejected]:
        del outlasts
        return self._search(request, pool, now).climb()


def world(seed: int) -> World:
    chance = Random(seed)
    preemption = rules(
        min_runtime_s=chance.choice([0, 4, 30]),
        cross_pool=chance.random() < 0.5,
        cross_pool_threshold=3,
        short_first=chance.choice([0, 10]),
        budget_share=chance.choice([0.3, 1.0]),
        pair_interval_s=5,
    )
    settings = LedgerSettings(idle_group_s=20, driver_lease_s=1e9, backfill_depth=10_000)
    return World(*POOLS[: 1 + seed % 2], nodes=NODES, preemption=preemption, settings=settings)


def something_happens(there: World, chance: Random, number: int) -> None:
    """Hand work in, end it, lose it, save it, or let time pass: the same for the same numbers and the same state."""
    what, running = chance.random(), sorted(there.running())
    if what < 0.55 or not running:
        there.ask(
            f"t{number}",
            chance.choice([1, 2, 4]),
            chance.choice([0, 0, 1]),
            members=chance.choice([1, 1, 2]),
            pool=chance.choice(list(there.ledger.pools)),
            priority=chance.choice([3.0, 5.0, 8.5]),
            role=chance.choice(["train", "rollout"]),
            # Of one kind, and some of them end before a shadow begins.
            estimated_duration_s=chance.uniform(64, 127) * (chance.random() < 0.9),
            checkpoints=chance.random() < 0.6,
            preemptible=there.ledger.rules.cross_pool,
        )
    elif what < 0.78:
        there.end(chance.choice(running))
    elif what < 0.8:
        there.lose(chance.choice(running))
    elif what < 0.85:
        name = chance.choice(running)
        there.ledger.saved(name, there.request(name).epoch, there.now)
    there.wait(chance.choice([0.0, 0.0, 6.0, 40.0]))


@pytest.mark.parametrize("seed", [2, 5, 7])
def test_what_is_skipped_would_have_found_no_place(seed: int) -> None:
    there, thorough = world(seed), world(seed)
    thorough.ledger._backfill = EverybodyIsLookedAt(thorough.ledger)
    for number in range(80):
        for each in (there, thorough):
            something_happens(each, Random(f"{seed}/{number}"), number)
        assert there.running() == thorough.running(), f"after step {number}"
    placed = [
        [each for each in one.told if isinstance(each, events.WorkPlaced | events.PreemptionPlanned)]
        for one in (there, thorough)
    ]
    assert placed[0] == placed[1]
    assert len(placed[0]) > 20


def test_of_one_kind_those_are_looked_at_that_end_before_the_reservation() -> None:
    there = World(preemption=rules(short_first=0))
    there.submit("runs", 6, estimated_duration_s=100.0)
    there.submit("wide", 8, estimated_duration_s=100.0)
    for name, told_s in (("too long", 120.0), ("fits", 70.0)):
        there.ask(name, 2, estimated_duration_s=told_s)
    there.settle()
    assert there.running() == {"runs", "fits"}


def test_room_that_a_stop_frees_beyond_its_need_goes_to_who_was_passed_before() -> None:
    nodes = {name: amounts(cpu=8) for name in ("n0", "n1")}
    there = World(pool(cpu=100), nodes=nodes, preemption=rules(short_first=0))
    there.submit("victim", 4, members=2, role="rollout")
    there.submit("ends soon", 8, preemptible=False, estimated_duration_s=10.0)
    there.ask("first", 8, priority=5.9)
    there.ask("passed", 4, priority=5.5)
    there.ask("stops", 4, role="train")
    there.ask("lower", 3, priority=1)
    there.settle()
    assert there.running() == {"ends soon", "stops", "passed"}
    assert there.stopped() == ["victim"]  # and not the lowest, which would have taken that room for a moment


def test_who_has_work_stopped_takes_its_warm_group_and_not_another_one_elsewhere() -> None:
    there = World(pool(cpu=4), nodes={name: amounts(cpu=4) for name in ("n0", "n1")}, preemption=rules())
    there.submit("victim", 4, role="rollout")
    there.submit("stops", 4, role="train")
    there.settle()
    assert there.running() == {"stops"}
    assert len(there.dynamic_groups()) == 1


@pytest.mark.parametrize("seed", range(4))
def test_the_line_is_walked_in_order_and_without_kinds_that_were_passed(seed: int) -> None:
    chance, queue, standing = Random(seed), Queue(1 / 3600), dict[str, Occupancy]()
    for number in range(200):
        if standing and chance.random() < 0.3:
            queue.discard(gone := chance.choice(sorted(standing)))
            del standing[gone]
        wanted = PlacementRequest(f"r{number}", "p", (amounts(cpu=chance.randint(1, 3)),), chance.choice([2.0, 5.0]))
        each = Occupancy(wanted, "d", submitted_at=chance.uniform(0, 9_000), order=number)
        each.left_s = Durations().left_s(each, 0.0)
        queue.add(each, rules())
        standing[each.request_id] = each
    in_order = sorted(standing, key=queue.place_of)
    assert [name for name, _ in queue.walk()] == in_order
    assert [queue.ahead_of(name) for name in in_order] == list(range(len(queue)))
    passed: set[int] = set()
    walked = []
    for name, number in queue.walk(passed):
        walked.append(name)
        if len(walked) == 20:
            passed.add(number)
    skipped = [name for name in in_order if name not in walked]
    assert {queue.number_of(name) for name in skipped} == passed
    assert walked == [name for name in in_order if name in walked]
