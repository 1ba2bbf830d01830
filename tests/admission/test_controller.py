"""Who is admitted, who waits and who is next: one rule of the controller each."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.admission import SUCCESS, Denied, Domain, ProviderModel, RequestItem, RequestKey, RequestLease
from headgate.admission.items import DenyReason, Ticket
from headgate.core import ReleaseOutcome, events
from headgate.core.errors import InvalidSettingError
from tests.admission.admission_world import CHAT, EMBEDDING, OTHER, REFUSED, A, B, World
from tests.admission.toy_laws import ToyLaw
from tests.examples import examples

# Limits.


def test_no_more_are_in_flight_than_the_cap_and_the_rest_waits() -> None:
    world = World(cap=2)
    leases = [world.lease(), world.lease()]
    waiting = world.wait()
    world.release(leases[0])
    assert waiting.lease is not None
    assert world.controller.accounts.in_flight(A.provider) == 2


def test_a_cap_holds_over_all_domains_of_a_model_together() -> None:
    world = World(cap=2)
    world.lease(CHAT)
    world.lease(EMBEDDING)
    world.wait(CHAT)
    world.wait(EMBEDDING)


def test_each_domain_has_a_limit_of_its_own_below_the_cap() -> None:
    world = World(ToyLaw, cap=8)
    lease = world.lease(CHAT)
    world.release(lease, REFUSED)
    world.later(3.0)
    limits = {Domain(s.domain): s.limit for s in world.controller.accounts.statuses(world.now)}
    for _ in range(4):
        world.lease(CHAT)
    world.wait(CHAT)
    for _ in range(4):
        world.lease(EMBEDDING)
    assert limits == {Domain.CHAT: 4}


def test_the_smallest_cap_of_several_aliases_holds_and_a_difference_is_told_once() -> None:
    world = World(cap=5)
    world.register(cap=3, alias="cheap")
    world.register(cap=4, alias="third")
    assert world.controller.accounts.by_name[A].cap == 3
    (differ,) = world.told(events.RequestCapsDiffer)
    assert (differ.caps, differ.used) == ({"m": 5, "cheap": 3}, 3)
    world.controller.unregister(A, "cheap", world.now)
    world.settle()
    assert world.controller.accounts.by_name[A].cap == 4


@pytest.mark.parametrize("cap", [0, -1])
def test_a_cap_below_one_is_refused_and_says_so(cap: int) -> None:
    with pytest.raises(InvalidSettingError, match=rf"cap of m .* >= 1 \(got {cap}\)"):
        World(cap=cap)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_above_zero_is_refused(weight: float) -> None:
    world = World(cap=1)
    world.lease()
    with pytest.raises(InvalidSettingError, match="weight of group 'g' must be > 0"):
        world.ask(weight=weight)
    assert world.controller.accounts.waiting() == 0


def test_a_lowered_cap_lets_what_is_in_flight_run_on() -> None:
    world = World(cap=3)
    leases = [world.lease() for _ in range(3)]
    world.register(cap=1)
    waiting = world.wait()
    world.release(leases[0])
    world.release(leases[1])
    assert waiting.lease is None
    world.release(leases[2])
    assert waiting.lease is not None


def test_a_raised_cap_serves_whoever_waits_at_once() -> None:
    world = World(cap=1)
    world.lease()
    waiting = [world.wait(), world.wait(), world.wait()]
    world.register(cap=3)
    assert [ticket.lease is not None for ticket in waiting] == [True, True, False]


def test_slots_of_a_provider_hold_over_all_its_models() -> None:
    world = World(cap=5)
    world.register(B, cap=5)
    world.controller.set_provider_cap(A.provider, 2, world.now)
    first, _ = world.lease(CHAT), world.lease(OTHER)
    waiting = world.wait(OTHER)
    world.release(first)
    assert waiting.lease is not None


def test_no_slots_admit_nothing_and_taking_the_bound_away_admits_again() -> None:
    world = World(cap=2)
    world.controller.set_provider_cap(A.provider, 0, world.now)
    waiting = world.wait()
    denied = world.controller.try_acquire(RequestItem(CHAT), world.now)
    assert isinstance(denied, Denied)
    world.controller.set_provider_cap(A.provider, None, world.now)
    world.settle()
    assert waiting.lease is not None
    with pytest.raises(InvalidSettingError, match=r">= 0 \(got -1\)"):
        world.controller.set_provider_cap(A.provider, -1, world.now)


# Order.


def test_inside_one_group_who_came_first_is_served_first() -> None:
    world = World(cap=1)
    lease = world.lease()
    tickets = [world.wait() for _ in range(5)]
    while world.controller.accounts.waiting():
        world.release(lease)
        lease = world.answered[-1].lease
    assert world.answered == tickets


@pytest.mark.parametrize("key", [CHAT, EMBEDDING])
def test_groups_share_the_cap_of_a_model_by_weight_over_its_domains(key: RequestKey) -> None:
    world = World(cap=1)
    lease = world.lease()
    for _ in range(40):
        world.wait(CHAT, "light", 1.0)
        world.wait(key, "heavy", 3.0)
    for _ in range(40):
        world.release(lease)
        lease = world.answered[-1].lease
    counts = Counter(world.served())
    assert abs(counts["heavy"] / 3 - counts["light"]) <= 1 + 1 / 3


def test_a_group_that_asks_for_two_models_of_a_provider_has_one_share_of_its_slots() -> None:
    world = World(cap=50)
    world.register(B, cap=50)
    world.controller.set_provider_cap(A.provider, 1, world.now)
    lease = world.lease()
    for _ in range(60):
        world.wait(CHAT, "both")
        world.wait(OTHER, "both")
        world.wait(CHAT, "one")
    for _ in range(60):
        world.release(lease)
        lease = world.answered[-1].lease
    counts = Counter(world.served())
    assert abs(counts["both"] - counts["one"]) <= 3
    of_both = Counter(t.item.key for t in world.answered if t.lease and t.item.group == "both")
    assert abs(of_both[CHAT] - of_both[OTHER]) <= 2


def test_a_key_that_admits_nothing_holds_up_no_other_of_the_same_group() -> None:
    world = World(cap=1)
    world.register(B, cap=1)
    world.lease(CHAT)
    other = world.lease(OTHER)
    stuck, free = world.wait(CHAT, "g"), world.wait(OTHER, "g")
    world.release(other)
    assert stuck.lease is None
    assert free.lease is not None


def test_try_acquire_never_goes_before_those_who_wait() -> None:
    world = World(ToyLaw, cap=2)
    world.release(world.lease(), REFUSED)
    waiting = world.wait()
    world.now += 2.0
    denied = world.controller.try_acquire(RequestItem(CHAT), world.now)
    world.settle()
    assert isinstance(denied, Denied)
    assert denied.reason is DenyReason.NO_CAPACITY
    assert waiting.lease is not None, "the cooldown is over: who waited is served before who only tries"


def test_try_acquire_says_what_stands_in_its_way() -> None:
    world = World(ToyLaw, cap=2)
    leases = [world.lease(), world.lease()]

    def reason() -> DenyReason:
        denied = world.controller.try_acquire(RequestItem(EMBEDDING), world.now)
        assert isinstance(denied, Denied)
        return denied.reason

    assert reason() is DenyReason.NO_CAPACITY
    world.release(leases[0], REFUSED)
    assert reason() is DenyReason.COOLDOWN
    world.later(2.0)
    world.controller.set_provider_cap(A.provider, 1, world.now)
    assert reason() is DenyReason.NO_SLOTS
    world.wait(EMBEDDING)
    assert reason() is DenyReason.QUEUED_WAITERS_AHEAD


# Who leaves before their turn.


def test_whoever_waits_until_the_deadline_is_denied_then_and_not_later() -> None:
    world = World(cap=1)
    lease = world.lease()
    ticket = world.wait(deadline=world.now + 5.0)
    patient = world.wait()
    assert world.controller.changes_at == world.now + 5.0
    world.later(5.0)
    assert ticket.denied is not None
    assert ticket.denied.reason is DenyReason.QUEUE_TIMEOUT
    (event,) = world.told(events.RequestWaitTimedOut)
    assert event.waited_s == 5.0
    world.release(lease)
    assert patient.lease is not None


def test_a_deadline_that_has_passed_is_no_reason_to_be_served_by_a_late_release() -> None:
    world = World(cap=1)
    lease = world.lease()
    ticket = world.wait(deadline=world.now + 5.0)
    world.now += 6.0
    world.release(lease)
    assert ticket.lease is None
    assert ticket.denied is not None


def test_without_time_to_wait_a_request_is_admitted_at_once_or_denied() -> None:
    world = World(cap=1)
    assert isinstance(world.ask(deadline=world.now), RequestLease)
    answer = world.controller.request(RequestItem(CHAT, deadline=world.now), world.now)
    assert isinstance(answer, Denied)
    assert answer.reason is DenyReason.QUEUE_TIMEOUT


def test_a_cancelled_waiter_is_gone_and_a_cancelled_grant_goes_to_the_next() -> None:
    world = World(cap=1)
    lease = world.lease()
    tickets = [world.wait(), world.wait(), world.wait()]
    assert world.controller.cancel(tickets[1], world.now)
    world.release(lease)
    assert tickets[0].lease is not None
    assert world.controller.cancel(tickets[0], world.now), "it was granted, and nobody has come for it"
    world.settle()
    assert tickets[2].lease is not None


def test_ten_thousand_cancellations_leave_nothing_behind() -> None:
    world = World(cap=1)
    lease = world.lease()
    tickets = [
        world.controller.request(RequestItem(CHAT, f"g{n % 7}", deadline=world.now + 9.0), world.now)
        for n in range(10_000)
    ]
    for ticket in tickets:
        assert isinstance(ticket, Ticket)
        world.controller.cancel(ticket, world.now)
    world.settle()
    assert world.controller.accounts.waiting() == 0
    assert len(world.controller._agenda._deadlines) <= 10_000
    world.later(10.0)
    assert len(world.controller._agenda._deadlines) == 0
    world.release(lease)


# Release.


def test_only_the_first_release_of_a_lease_counts_and_others_say_why() -> None:
    world = World(cap=2, generation=7)
    lease, _ = world.lease(), world.lease()
    world.release(lease)
    assert world.controller.release(lease, SUCCESS, world.now) is ReleaseOutcome.DUPLICATE
    forged = copy.copy(lease)
    forged.number = 99
    assert world.controller.release(forged, SUCCESS, world.now) is ReleaseOutcome.UNKNOWN
    foreign = World(generation=6).lease()
    assert world.controller.release(foreign, SUCCESS, world.now) is ReleaseOutcome.WRONG_GENERATION
    world.settle()
    assert [e.reason for e in world.told(events.RequestReleaseRefused)] == [
        "duplicate",
        "unknown",
        "wrong_generation",
    ]
    assert world.controller.accounts.in_flight(A.provider) == 1


def test_a_copy_of_a_lease_stands_for_the_lease() -> None:
    world = World(cap=1)
    lease = world.lease()
    assert world.controller.release(copy.copy(lease), REFUSED, world.now) is ReleaseOutcome.RELEASED
    assert world.controller.release(lease, REFUSED, world.now) is ReleaseOutcome.DUPLICATE


def test_releases_need_no_memory_to_be_told_from_duplicates() -> None:
    world = World(cap=1)
    first = world.lease()
    world.release(first)
    for _ in range(10_000):
        lease = world.controller.request(RequestItem(CHAT), world.now)
        assert isinstance(lease, RequestLease)
        world.controller.release(lease, SUCCESS, world.now)
    assert world.controller.release(first, SUCCESS, world.now) is ReleaseOutcome.DUPLICATE
    assert world.controller._live == {}


# The ends.


def test_a_shutdown_denies_who_waits_and_who_comes_and_takes_leases_back() -> None:
    world = World(cap=1)
    lease, waiting = world.lease(), world.wait()
    world.controller.shutdown("the campaign ends", world.now)
    world.settle()
    assert waiting.denied == Denied(DenyReason.SHUTDOWN, None, "the campaign ends")
    answer = world.controller.request(RequestItem(CHAT), world.now)
    assert isinstance(answer, Denied)
    assert answer.reason is DenyReason.SHUTDOWN
    world.release(lease)
    assert world.controller.accounts.in_flight(A.provider) == 0


def test_a_model_that_is_withdrawn_is_not_asked_any_more_and_is_forgotten_when_it_is_idle() -> None:
    world = World(cap=1)
    lease, waiting = world.lease(), world.wait()
    world.controller.unregister(A, "m", world.now)
    world.settle()
    assert waiting.denied is not None
    assert waiting.denied.reason is DenyReason.UNREGISTERED
    answer = world.controller.request(RequestItem(CHAT), world.now)
    assert isinstance(answer, Denied)
    assert answer.reason is DenyReason.UNREGISTERED
    world.release(lease)
    assert A not in world.controller.accounts.by_name
    assert world.controller.accounts.statuses(world.now) == []
    world.register(cap=1)
    world.lease()


def test_models_that_come_and_go_leave_nothing_behind() -> None:
    world = World(cap=1)
    for number in range(200):
        account = ProviderModel(f"https://p{number}", "m")
        world.register(account, cap=1)
        world.release(world.lease(RequestKey(account)))
        world.controller.unregister(account, "m", world.now)
    assert len(world.controller.accounts.providers) == 1
    assert len(world.controller._keys) == 0


@settings(max_examples=examples(60), deadline=None)
@given(
    weights=st.lists(st.floats(0.25, 4.0), min_size=2, max_size=6),
    slots=st.integers(1, 4),
    services=st.integers(1, 120),
)
def test_groups_that_keep_waiting_are_served_by_weight_to_within_one_turn_each(
    weights: list[float], slots: int, services: int
) -> None:
    world = World(cap=slots)
    held = [world.lease(group="first") for _ in range(slots)]
    shares = {f"g{number}": weight for number, weight in enumerate(weights)}
    for group, weight in shares.items():
        for _ in range(services + 1):
            world.controller.request(RequestItem(CHAT, group, weight), world.now)
    world.settle()
    for _ in range(services):
        world.controller.release(held.pop(0), SUCCESS, world.now)
        (ticket,) = (effect for effect in world.controller.effects.drain() if isinstance(effect, Ticket))
        assert ticket.lease is not None
        held.append(ticket.lease)
        world.answered.append(ticket)
    served = Counter(world.served())
    for one, its in shares.items():
        for other, others in shares.items():
            assert abs(served[one] / its - served[other] / others) <= 1 / its + 1 / others + 1e-9


def test_models_that_come_and_go_at_one_provider_leave_no_lanes_behind() -> None:
    world = World(cap=1)
    for number in range(50):
        account = ProviderModel(A.provider, f"m{number}")
        world.register(account, cap=1)
        lease, waiting = world.lease(RequestKey(account)), world.wait(RequestKey(account))
        world.release(lease)
        world.release(waiting.lease)
        world.controller.unregister(account, "m", world.now)
    assert len(world.controller.accounts.providers[A.provider].waiters._queue._lanes) <= 1
