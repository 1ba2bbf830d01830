"""The effects of the controller's decisions: answered tickets, events, and changed pressures."""

from __future__ import annotations

from typing import Final, TypeAlias

from headgate.admission.accounts import Account, KeyState, Provider
from headgate.admission.breaker import BreakerMove
from headgate.admission.items import (
    Denied,
    Pressure,
    PressureChanged,
    PressureReason,
    RequestItem,
    RequestLease,
    Ticket,
)
from headgate.admission.laws import LimitChange
from headgate.admission.rates import MOVED_S, REASONS
from headgate.core import events

Effect: TypeAlias = Ticket | events.Event | PressureChanged
"""An answered ticket, an event, or a changed pressure; to be carried out in order."""

_QUEUE_TOLD_EVERY_S: Final = 1.0
"""At a busy key every other request waits briefly: report that as one queue, not as thousands."""


class Effects:
    """Collects the effects of decisions. Pure; owned by the controller, emptied by its owner.

    Events of single requests (a lease acquired, a wait begun) are made only if `trace_requests` is set; changes of a
    limit, a cap or a breaker are always reported.
    """

    __slots__ = ("pending", "trace_requests")

    def __init__(self, *, trace_requests: bool) -> None:
        self.pending: list[Effect] = []
        self.trace_requests = trace_requests

    def drain(self) -> list[Effect]:
        """Return the effects to carry out, and forget them."""
        drained, self.pending = self.pending, []
        return drained

    # Single requests.

    def waiting(self, ticket: Ticket, key: KeyState, reason: str) -> None:
        """Report that a ticket began to wait."""
        if key.waiting == 1 and ticket.since - key.queue_told_at >= _QUEUE_TOLD_EVERY_S:
            key.queue_told_at, key.is_queue_told = ticket.since, True
            self.pending.append(events.RequestQueueFormed(*_limit(key), reason))
        if self.trace_requests:
            self.pending.append(events.RequestWaitStarted(*_attempt(ticket.item), reason, key.waiting))

    def granted(self, lease: RequestLease, in_flight: int) -> None:
        """Report that a lease was acquired; called only if requests are traced."""
        self.pending.append(
            events.RequestLeaseAcquired(*_attempt(lease.item), lease.lease_id, lease.admitted.limit, in_flight)
        )

    def served(self, ticket: Ticket, lease: RequestLease, now: float) -> None:
        """Answer a ticket with a lease."""
        ticket.lease = lease
        self.pending.append(ticket)
        if self.trace_requests:
            waited = now - ticket.since
            self.pending.append(events.RequestWaitCompleted(*_attempt(ticket.item), lease.lease_id, waited))

    def refused(self, ticket: Ticket, denied: Denied, now: float, *, timed_out: bool = False) -> None:
        """Answer a waiting ticket with a denial."""
        ticket.denied = denied
        self.pending.append(ticket)
        if timed_out:
            self.pending.append(events.RequestWaitTimedOut(*_attempt(ticket.item), now - ticket.since))
        self.denied(ticket.item, denied, now)

    def denied(self, item: RequestItem, denied: Denied, now: float) -> None:
        """Report that a request was denied."""
        retry_after_s = None if denied.retry_at is None else max(0.0, denied.retry_at - now)
        self.pending.append(events.RequestDenied(*_attempt(item), denied.reason.value, retry_after_s, denied.detail))

    def cancelled(self, ticket: Ticket, now: float) -> None:
        """Report that a waiting ticket was cancelled."""
        if self.trace_requests:
            self.pending.append(events.RequestWaitCancelled(*_attempt(ticket.item), now - ticket.since))

    def released(self, lease: RequestLease, outcome: str, now: float) -> None:
        """Report that a lease was released; called only if requests are traced."""
        held_s = now - lease.acquired_at
        self.pending.append(events.RequestLeaseReleased(*_attempt(lease.item), lease.lease_id, outcome, held_s))

    def release_refused(self, lease: RequestLease, reason: str) -> None:
        """Report the release of a lease that is not held."""
        self.pending.append(events.RequestReleaseRefused(*_attempt(lease.item), lease.lease_id, reason))

    def rate_limited(self, lease: RequestLease, retry_after_s: float | None, blocked_s: float) -> None:
        """Report that a provider refused an attempt."""
        self.pending.append(
            events.RequestRateLimited(*_attempt(lease.item), lease.lease_id, retry_after_s, max(0.0, blocked_s))
        )

    # Keys and accounts.

    def drained(self, key: KeyState, now: float) -> None:
        """Report that a key's queue is empty again."""
        if not key.is_queue_told:
            return
        key.is_queue_told = False
        self.pending.append(events.RequestQueueDrained(*_limit(key), now - key.queued_since))

    def limit_changed(self, key: KeyState, change: LimitChange) -> None:
        """Report how a law moved its limit."""
        where, before, after = _limit(key), change.before, change.after
        if change.reason == "soft_ceiling_recovered":
            self.pending.append(events.RequestCeilingRecovered(*where, before, after, key.law.ceiling))
        elif change.reason == "fully_recovered":
            self.pending.append(events.RequestFullyRecovered(*where, before, after))
        elif after < before:
            self.pending.append(events.RequestLimitDecreased(*where, before, after, change.reason, key.law.ceiling))
        elif after > before:
            self.pending.append(events.RequestLimitIncreased(*where, before, after, change.reason))

    def breaker_moved(self, account: Account, move: BreakerMove, now: float) -> None:
        """Report that a breaker opened or closed."""
        breaker = account.breaker
        if move is BreakerMove.OPENED:
            self.pending.append(events.BreakerOpened(*account.name, breaker.until - now, breaker.rule.refusals))
        else:
            self.pending.append(events.BreakerClosed(*account.name, now - breaker.opened_at))


def started(item: RequestItem, lease_id: str) -> events.RequestStarted:
    """Return the event for an attempt that is sent now."""
    return events.RequestStarted(*_attempt(item), lease_id)


def _attempt(item: RequestItem) -> tuple[str, str, str, str, str, int, str, str]:
    """Return the fields that every event about one attempt begins with."""
    return *item.key.account, item.key.domain.value, item.group, *item.correlation


def _limit(key: KeyState) -> tuple[str, str, str]:
    """Return the fields that every event about one limit begins with."""
    return *key.key.account, key.key.domain.value


class PressureWatch:
    """Compares the pressure on keys with what was last reported. Pure; owned by the controller.

    That a provider has no slot left is reported for each of its models, which may be hundreds. So it is reported only
    once a request had to wait for a slot, until one stays free, and not whenever the last one is taken and released.
    """

    __slots__ = ("_effects", "is_on")

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.is_on = False

    def note(self, account: Account, now: float) -> None:
        """Report changes after a decision about an account; for the whole provider if its slot shortage changed."""
        provider = account.provider
        if provider.is_short is not _is_short(provider):
            self.note_provider(provider, now)
            return
        for key in account.keys.values():
            self.note_key(key, now)

    def note_provider(self, provider: Provider, now: float) -> None:
        """Report what changed on any key of a provider."""
        provider.is_short = _is_short(provider)
        for account in provider.accounts.values():
            for key in account.keys.values():
                self.note_key(key, now)

    def note_key(self, key: KeyState, now: float) -> None:
        """Report the pressure on a key if it has changed."""
        pressure = key.pressure(now)
        if pressure is None and key.told is None:
            return
        if pressure is not None and pressure.reason is PressureReason.NO_SLOTS and not key.account.provider.is_short:
            pressure = None
        if pressure is not None and pressure.reason in REASONS and (pressure.until or now) - now < MOVED_S:
            pressure = key.told if is_same_rate(pressure, key.told) else None
        if pressure != key.told and not is_same_rate(pressure, key.told):
            key.told = pressure
            self._effects.pending.append(PressureChanged(key.key, pressure))

    def forget(self, account: Account) -> None:
        """Report that the keys of a dropped account are under no pressure."""
        for key in account.keys.values():
            if key.told is not None:
                self._effects.pending.append(PressureChanged(key.key, None))


def is_same_rate(now: Pressure | None, told: Pressure | None) -> bool:
    """Return whether both are the same limit per minute with nearly the same end, which moves with each request."""
    if now is None or told is None or now.reason is not told.reason or now.reason not in REASONS:
        return False
    return abs((now.until or 0.0) - (told.until or 0.0)) < MOVED_S


def _is_short(provider: Provider) -> bool:
    return provider.in_flight >= provider.slots and (provider.is_short or provider.waiters.ready > 0)
