"""What the controller makes of refusals: cooldown, circuit breaker, pressure, and what it tells of them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from headgate.admission import Correlation, Denied, OutcomeKind, Pressure, PressureReason, RequestItem, RequestOutcome
from headgate.admission.breaker import Breaker, BreakerRule
from headgate.admission.items import DenyReason
from headgate.admission.laws import Admitted
from headgate.core import events
from tests.admission.admission_world import CHAT, EMBEDDING, FAILED, OTHER, REFUSED, A, B, World, refused
from tests.admission.toy_laws import FixedLaw, ToyLaw

# Cooldown.


def test_a_cooldown_holds_for_every_domain_of_the_model_and_for_no_other_model() -> None:
    world = World(ToyLaw, cap=4)
    world.register(B, cap=4)
    world.release(world.lease(CHAT), REFUSED)
    waiting = world.wait(EMBEDDING)
    world.lease(OTHER)
    world.later(1.9)
    assert waiting.lease is None
    world.later(0.1)
    assert waiting.lease is not None
    assert waiting.lease.acquired_at == pytest.approx(1002.0)


def test_a_refusal_without_a_time_does_not_shorten_the_time_that_another_one_gave() -> None:
    world = World(ToyLaw, cap=4)
    first, second = world.lease(), world.lease()
    world.release(first, refused(50.0))
    world.later(1.0)
    world.release(second, refused(None))
    snapshot = world.controller.accounts.keys[CHAT].status(world.now)
    assert snapshot.cooldown_s == 49.0
    assert snapshot.consecutive_rate_limits == 2


def test_a_refusal_in_another_domain_does_not_shorten_the_cooldown_either() -> None:
    world = World(ToyLaw, cap=4)
    chat, embedding = world.lease(CHAT), world.lease(EMBEDDING)
    world.release(chat, refused(50.0))
    world.release(embedding, refused(None))
    assert world.controller.accounts.by_name[A].blocked_until == 1050.0


def test_a_cooldown_that_nobody_waits_for_sets_no_timer() -> None:
    world = World(ToyLaw, cap=4)
    world.release(world.lease(), REFUSED)
    assert world.controller.changes_at == float("inf")
    world.now += 2.5
    world.lease()


def test_a_limit_that_grows_by_time_lets_who_waits_go() -> None:
    world = World(ToyLaw, cap=2)
    world.release(world.lease(), REFUSED)
    world.later(3.0)
    world.lease()
    waiting = world.wait()
    assert world.controller.changes_at == 1010.0
    world.later(7.0)
    assert waiting.lease is not None
    assert [(e.before, e.after) for e in world.told(events.RequestLimitIncreased)] == [(1, 2)]


# The circuit breaker (opens at the third refusal at limit 1; 5 s, 10 s, 20 s, at most 30 s).


def tripped(times: int = 3, asked_s: float | None = None) -> World:
    """Return a world whose model refused that many single requests in a row."""
    world = World(FixedLaw, cap=1)
    for _ in range(times):
        world.release(world.lease(), refused(asked_s))
    return world


def test_steady_refusals_of_single_requests_open_the_breaker_for_all_domains() -> None:
    world = tripped(2)
    assert world.controller.accounts.pressure(CHAT, world.now) is None
    world.release(world.lease(), REFUSED)
    assert world.controller.accounts.pressure(EMBEDDING, world.now) == Pressure(
        PressureReason.BREAKER_OPEN, world.now + 5.0
    )
    (opened,) = world.told(events.BreakerOpened)
    assert (opened.retry_in_s, opened.refusals) == (5.0, 3)
    denied = world.controller.try_acquire(RequestItem(CHAT), world.now)
    assert denied == Denied(DenyReason.BREAKER_OPEN, world.now + 5.0)


def test_refusals_at_a_higher_limit_or_with_successes_between_do_not_open_it() -> None:
    world = World(FixedLaw, cap=2)
    for _ in range(10):
        world.release(world.lease(), REFUSED)
    world.register(cap=1)
    for _ in range(5):
        world.release(world.lease(), REFUSED)
        world.release(world.lease(), REFUSED)
        world.release(world.lease())
    assert world.told(events.BreakerOpened) == []


def test_after_its_time_one_probe_is_sent_and_its_success_closes_the_breaker() -> None:
    world = tripped()
    world.register(cap=4)
    waiting = [world.wait(), world.wait(), world.wait()]
    world.later(5.0)
    assert [ticket.lease is not None for ticket in waiting] == [True, False, False]
    assert world.controller.accounts.keys[CHAT].status(world.now).breaker == "half_open"
    world.release(waiting[0].lease)
    assert all(ticket.lease for ticket in waiting)
    (closed,) = world.told(events.BreakerClosed)
    assert closed.open_for_s == 5.0
    assert world.controller.accounts.keys[CHAT].status(world.now).breaker == "closed"


def test_each_refused_probe_doubles_the_time_up_to_the_longest() -> None:
    world = tripped()
    for expected in (10.0, 20.0, 30.0, 30.0):
        probe = world.wait()
        world.later(30.0)
        world.release(probe.lease, REFUSED)
        pressure = world.controller.accounts.pressure(CHAT, world.now)
        assert pressure.until - world.now == expected


def test_the_longer_everything_is_refused_the_less_often_it_is_probed() -> None:
    breaker, at, pauses = Breaker(), 0.0, list[float]()
    for lease in range(400):
        breaker.admitted(lease)
        breaker.observe(lease, Admitted(at, 1), REFUSED, at)
        pauses.append(round(max(0.0, breaker.until - at), 6))
        at = max(at, breaker.until)
    pauses = pauses[BreakerRule().refusals - 1 :]
    assert pauses[:4] == [5.0, 10.0, 20.0, 20.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 300.0
    assert sum(pauses) > 200 * 300.0


@pytest.mark.parametrize(("asked_s", "waits_s"), [(0.0, 5.0), (12.0, 12.0), (1e9, 30.0)])
def test_the_provider_may_ask_for_a_longer_time_but_not_for_ever(asked_s: float, waits_s: float) -> None:
    world = tripped(asked_s=asked_s)
    assert world.controller.accounts.pressure(CHAT, world.now).until == world.now + waits_s


def test_a_probe_that_proves_nothing_is_followed_by_another_one() -> None:
    world = tripped()
    cancelled, failed, third = world.wait(), world.wait(), world.wait()
    world.later(5.0)
    world.release(cancelled.lease, RequestOutcome(OutcomeKind.LOCAL_CANCELLED))
    assert failed.lease is not None, "nothing was learnt: the next probe is sent at once"
    world.release(failed.lease, FAILED)
    assert third.lease is None, "a failing provider is asked at the breaker's own pace"
    world.later(5.0)
    assert third.lease is not None


def test_a_success_from_before_it_opened_does_not_close_it() -> None:
    world = World(ToyLaw, cap=4)
    old = world.lease(CHAT)
    for _ in range(5):
        world.release(world.lease(EMBEDDING), REFUSED)
        world.later(2.0)
    assert world.told(events.BreakerOpened) != []
    world.release(old)
    assert world.controller.accounts.keys[CHAT].status(world.now).breaker == "open"


# Pressure.


def test_pressure_names_the_first_of_its_reasons_in_order() -> None:
    world = World(ToyLaw, cap=2)

    def reason(key: object = CHAT) -> str:
        pressure = world.controller.accounts.pressure(key, world.now)
        return pressure.reason.value if pressure else ""

    assert reason() == ""
    first, second = world.lease(), world.lease()
    assert reason() == "provider_model_aggregate_cap"
    world.release(first, refused(5.0))
    assert reason() == "cooldown"
    world.later(5.0)
    assert reason() == "resource_limit"
    world.wait()
    assert reason() == "waiters"
    assert reason(EMBEDDING) == ""
    world.controller.set_provider_cap(A.provider, 1, world.now)
    assert reason(EMBEDDING) == "no_slots"
    world.release(second)


def test_changes_of_pressure_are_told_once_each_when_somebody_watches() -> None:
    world = World(ToyLaw, cap=1)
    world.release(world.lease())
    assert world.pressures == []
    world.controller.watch(world.now)
    lease = world.lease()
    world.release(lease, REFUSED)
    assert world.controller.changes_at == world.now + 2.0, "its end is told as well, although nobody waits"
    world.later(3.0)
    assert [change.pressure and change.pressure.reason.value for change in world.pressures] == [
        "provider_model_aggregate_cap",
        "cooldown",
        None,
    ]


def test_a_provider_without_slots_is_pressure_on_each_of_its_models_once_somebody_waits_for_one() -> None:
    world = World(cap=5)
    world.register(B, cap=5)
    world.release(world.lease(OTHER))
    world.controller.watch(world.now)
    world.controller.set_provider_cap(A.provider, 1, world.now)
    for _ in range(3):
        world.release(world.lease(CHAT))
    assert world.pressures == [], "the last slot was taken and given back, and nobody missed it"
    lease, waiting = world.lease(CHAT), world.wait(CHAT)
    assert {change.key: change.pressure.reason.value for change in world.pressures} == {
        CHAT: "waiters",
        OTHER: "no_slots",
    }
    world.pressures.clear()
    world.release(lease)
    assert {change.key: change.pressure.reason.value for change in world.pressures} == {CHAT: "no_slots"}
    world.pressures.clear()
    world.release(waiting.lease)
    assert {change.key: change.pressure for change in world.pressures} == {CHAT: None, OTHER: None}


def test_the_slot_bank_is_told_how_many_waiters_more_slots_would_let_go() -> None:
    world = World(ToyLaw, cap=3)
    world.register(B, cap=9)
    world.controller.set_provider_cap(A.provider, 1, world.now)
    world.lease(CHAT)
    for _ in range(5):
        world.wait(CHAT)
        world.wait(OTHER)
    assert world.controller.accounts.pressing(A.provider, world.now) == 2 + 5
    assert world.controller.accounts.pressing("https://nobody", world.now) == 0


# What is told.


def test_an_uncontended_request_makes_no_event_unless_requests_are_traced() -> None:
    for trace, expected in ((False, []), (True, ["RequestLeaseAcquired", "RequestLeaseReleased"])):
        world = World(cap=1, trace=trace)
        world.events.clear()
        world.release(world.lease())
        assert [type(event).__name__ for event in world.events] == expected


def test_each_event_of_a_request_says_which_request_of_which_task_it_is() -> None:
    world = World(cap=1, trace=True)
    lease = world.lease()
    world.events.clear()
    item = RequestItem(CHAT, "g", correlation=Correlation("q-1", 2, "t-1", "abc"))
    ticket = world.controller.request(item, world.now)
    world.later(1.5)
    world.release(lease)
    world.release(ticket.lease, refused(4.0))
    of_item = [event for event in world.events if getattr(event, "request_id", None) == "q-1"]
    assert [type(event).__name__ for event in of_item] == [
        "RequestWaitStarted",
        "RequestLeaseAcquired",
        "RequestWaitCompleted",
        "RequestRateLimited",
        "RequestLeaseReleased",
    ]
    for event in of_item:
        assert (event.attempt, event.task_id, event.trace_id, event.group) == (2, "t-1", "abc", "g")
        assert json.loads(json.dumps(dataclasses.asdict(event)))["provider"] == A.provider
    assert of_item[2].waited_s == 1.5
    assert of_item[2].lease_id == of_item[4].lease_id == ticket.lease.lease_id


def test_a_queue_that_forms_and_drains_is_told_with_its_reason_and_time() -> None:
    world = World(cap=1)
    lease = world.lease()
    world.wait()
    world.later(2.5)
    world.wait()
    world.release(lease)
    world.release(world.answered[0].lease)
    (formed,) = world.told(events.RequestQueueFormed)
    (drained,) = world.told(events.RequestQueueDrained)
    assert formed.reason == "provider_model_aggregate_cap"
    assert drained.queued_for_s == 2.5


def test_a_queue_that_forms_at_every_other_request_is_told_once_a_second() -> None:
    world = World(cap=1)
    lease = world.lease()
    for _ in range(100):
        waiting = world.wait()
        world.later(0.05)
        world.release(lease)
        assert waiting.lease is not None
        lease = waiting.lease
    assert 4 <= len(world.told(events.RequestQueueFormed)) <= 5
    assert len(world.told(events.RequestQueueDrained)) == len(world.told(events.RequestQueueFormed))


def test_limits_that_move_are_told_with_what_they_recover_to() -> None:
    world = World(ToyLaw, cap=4)
    world.release(world.lease(), REFUSED)
    (cut,) = world.told(events.RequestLimitDecreased)
    assert (cut.before, cut.after, cut.ceiling) == (4, 2, 4)
    world.register(cap=3)
    (changed,) = world.told(events.RequestCapChanged)
    assert (changed.before, changed.after) == (4, 3)


def test_snapshots_hold_what_is_so() -> None:
    world = World(cap=2)
    world.lease()
    snapshot = world.controller.accounts.keys[CHAT].status(world.now)
    assert (snapshot.in_flight, snapshot.peak_in_flight, snapshot.pressure) == (1, 1, None)
    assert (snapshot.cap, snapshot.limit) == (2, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.limit = 9
