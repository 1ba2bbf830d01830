"""The slot bank, one rule at a time, in simulated time."""

from __future__ import annotations

import random

import pytest

from headgate.admission.bank import BankRules, LeaseBlock, LimitSeen, LookAtLimit, Outage, RenewBlock, SlotBank
from headgate.core.events import SlotLimitChanged, SlotsLost
from tests.admission.slot_world import World


def test_waiters_make_it_grow_block_by_block_to_what_they_need() -> None:
    world = World(64, 20)
    world.settle()
    assert world.held() == [24]
    assert world.processes[0].in_flight == 20
    assert [grant.slots for grant in world.server.leases.values()] == [8, 8, 8]


def test_it_never_asks_for_more_than_the_limit_has() -> None:
    world = World(10, 50)
    world.settle()
    assert world.held() == [10]
    assert world.server.active() == 10


def test_a_process_that_needs_nothing_makes_no_call() -> None:
    world = World(64, 0)
    world.run(3_600)
    assert world.server.calls == 0


def test_blocks_that_idle_are_given_back() -> None:
    world = World(64, 20)
    world.settle()
    world.processes[0].finish(18)
    world.run(25)
    assert world.held() == [8]
    world.processes[0].finish(2)
    world.run(25)
    assert world.held() == [0]
    assert world.server.active() == 0


def test_a_block_is_not_given_back_while_requests_in_flight_need_it() -> None:
    world = World(64, 16)
    world.settle()
    world.server.limit = 4
    world.run(25)
    assert world.held() == [0]  # nothing new is admitted
    assert world.server.active() == 16  # but what is in flight stays covered
    world.processes[0].finish(8)
    world.run(1)
    assert world.server.active() == 8
    world.processes[0].finish(8)
    world.run(1)
    assert world.server.active() <= 4


def test_two_processes_share_what_is_there_to_within_a_block() -> None:
    world = World(64, 100, 0)
    world.settle()
    assert world.held() == [64, 0]
    world.processes[1].waiting = 100
    for _ in range(60):
        world.run(1)
        for process in world.processes:
            process.in_flight = min(process.in_flight, process.bank.slots_held(world.now) or 0)
    assert world.held() == [32, 32]
    assert world.server.active() <= 64


def test_a_block_too_coarse_to_share_is_broken_up_so_that_nobody_starves() -> None:
    world = World(8, 50, 0, 0)
    world.settle()
    assert world.held() == [8, 0, 0]
    for process in world.processes[1:]:
        process.waiting = 50
    for _ in range(120):
        world.run(1)
        for process in world.processes:
            process.in_flight = min(process.in_flight, process.bank.slots_held(world.now) or 0)
    assert sorted(held or 0 for held in world.held()) == [2, 3, 3]


def test_a_lowered_limit_is_followed_within_one_renewal() -> None:
    world = World(64, 100)
    world.settle()
    world.server.limit = 16
    world.processes[0].in_flight = 0
    world.run(20)
    assert world.held() == [16]
    assert SlotLimitChanged("api", 64, 16) in world.events


def test_a_raised_limit_is_used_within_one_renewal() -> None:
    world = World(0, 100)
    world.run(60)
    assert world.held() == [0]
    world.server.limit = 32
    world.run(20)
    assert world.held() == [32]


def test_a_limit_that_is_turned_off_bounds_nothing_until_it_is_turned_on() -> None:
    world = World(8, 100)
    world.settle()
    world.server.enabled = False
    world.run(20)
    assert world.held() == [None]
    world.server.enabled = True
    world.run(20)
    assert world.held() == [8]
    assert world.processes[0].in_flight == 100


def test_a_limit_deleted_while_in_use_admits_nothing_and_is_looked_for() -> None:
    world = World(16, 10)
    world.settle()
    world.server.limit = None
    world.run(20)
    assert world.held() == [0]
    assert world.kinds().count("SlotLimitMissing") == 1
    assert SlotsLost("api", 8, 0, "limit_deleted") in world.events
    world.server.limit, world.server.leases = 16, {}
    world.run(6)
    assert world.held() == [16]


def test_a_limit_that_never_was_fails_closed() -> None:
    world = World(None, 10)
    world.run(120)
    assert world.held() == [0]
    assert world.kinds() == ["SlotLimitMissing"]


def test_a_lost_block_is_not_used_from_that_moment_on() -> None:
    world = World(64, 16)
    world.settle()
    world.server.leases.clear()
    world.server.limit = 0
    world.run(20.1)
    assert world.held() == [0]
    assert {event.reason for event in world.events if isinstance(event, SlotsLost)} == {"revoked"}


def test_held_slots_are_used_until_their_leases_end_when_the_server_is_away() -> None:
    world = World(64, 16)
    world.run(10)
    world.is_up = False
    world.run(45)
    assert world.held() == [16]
    assert world.kinds().count("SlotServiceAway") == 1
    world.run(16)
    assert world.held() == [0]
    assert world.kinds().count("SlotsLost") == 2


def test_the_policy_stop_admits_nothing_while_the_server_is_away() -> None:
    world = World(64, 16, rules=BankRules(outage=Outage.STOP))
    world.run(10)
    world.is_up = False
    world.run(20)
    assert world.held() == [0]
    world.is_up = True
    world.run(11)
    assert world.held() == [16]


def test_an_outage_shorter_than_a_lease_costs_nothing() -> None:
    world = World(64, 16)
    world.run(10)
    world.is_up = False
    world.run(40)
    world.is_up = True
    world.run(60)
    assert world.held() == [16]
    assert "SlotsLost" not in world.kinds()
    assert world.kinds()[-1] == "SlotServiceBack"


def test_ten_minutes_without_a_server_end_with_all_slots_again() -> None:
    world = World(64, 64)
    world.run(10)
    world.is_up = False
    calls = world.server.calls
    world.run(600)
    assert world.held() == [0]
    world.processes[0].in_flight, world.processes[0].waiting = 0, 64
    world.is_up = True
    world.run(11)
    assert world.held() == [64]
    assert world.server.calls - calls < 30


def test_an_outage_is_probed_ever_less_often() -> None:
    bank = SlotBank("api", "p", BankRules(), random.Random(0))
    bank.demand(0, 5, 0.0)
    now, probes = 0.0, []
    while now < 600:
        for call in bank.decide(now):
            probes.append(now)
            bank.failed(call, now, reason="refused")
        following = bank.next_at(now)
        assert following is not None
        now = max(following, now + 1e-6)
    assert 60 <= len(probes) <= 90
    assert probes[2] < 4


def test_a_busy_server_is_asked_again_soon_and_counts_as_there() -> None:
    bank = SlotBank("api", "p", BankRules(), random.Random(0))
    bank.demand(0, 5, 0.0)
    (look,) = bank.decide(0.0)
    bank.failed(look, 0.0, reason="503", is_busy=True)
    assert bank.decide(0.0) == []
    assert bank.decide(1.0) == [LookAtLimit()]


def test_the_end_of_a_block_counts_from_before_the_call() -> None:
    bank = SlotBank("api", "p", BankRules(), random.Random(0))
    bank.demand(0, 5, 0.0)
    bank.decide(0.0)
    bank.looked(LimitSeen(64, 0), [], 0.0)
    assert bank.decide(0.0) == [LeaseBlock(8)]
    bank.leased("l", 8, 0.0, now=9.0)  # the answer took nine seconds
    assert bank.slots_held(59.9) == 8
    assert bank.slots_held(60.0) == 0


def test_leases_are_renewed_at_a_third_of_their_length() -> None:
    bank = SlotBank("api", "p", BankRules(lease_s=90), random.Random(0))
    bank.demand(3, 0, 0.0)
    bank.decide(0.0)
    bank.looked(LimitSeen(64, 0), [], 0.0)
    bank.decide(0.0)
    bank.leased("l", 8, 0.0, 0.0)
    assert bank.decide(25.0) == []
    bank.looked(LimitSeen(64, 8), [], 25.0)
    assert bank.decide(30.0) == [RenewBlock("l")]


def test_closing_returns_everything_and_twice_is_fine() -> None:
    world = World(64, 30)
    world.run(30)
    process = world.processes[0]
    process.in_flight = process.waiting = 0
    process.bank.close()
    process.bank.close()
    world.settle()
    assert process.bank.is_done
    assert world.server.active() == 0


def test_a_block_that_arrives_after_closing_is_returned() -> None:
    world = World(64, 5)
    bank = world.processes[0].bank
    bank.demand(0, 5, 0.0)
    world.server.answer(bank.decide(0.0)[0], bank, [], 0.0, 0.0)
    (lease,) = bank.decide(0.0)
    bank.close()
    assert not bank.is_done
    world.server.answer(lease, bank, [], 0.0, 0.0)
    (back,) = bank.decide(0.0)
    world.server.answer(back, bank, [], 0.0, 0.0)
    assert bank.is_done
    assert world.server.active() == 0


def test_closing_while_the_server_is_away_ends_and_leaves_the_rest_to_the_leases() -> None:
    world = World(64, 30)
    world.run(30)
    world.is_up = False
    world.processes[0].in_flight = world.processes[0].waiting = 0
    world.processes[0].bank.close()
    world.settle()
    assert world.processes[0].bank.is_done


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"block": 0}, "block must be >= 1"),
        ({"lease_s": 59}, "lease_s must be >= 60"),
        ({"lease_s": float("nan")}, "lease_s"),
        ({"most": 0}, "most must be >= 1"),
        ({"idle_s": -1}, "idle_s must be >= 0"),
    ],
)
def test_rules_that_cannot_work_are_refused(bad: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        BankRules(**bad)  # type: ignore[arg-type]
