"""What one model may spend in any 24 h: reserved before a request is sent, settled when it is answered."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from headgate.core import DAY_S, NO_SPENDING, ModelBudget, Spending

BUCKET_S: Final = 60.0
"""Spending of one minute leaves the window together, so the window holds at most 1 441 entries."""


class SpendingWindow:
    """Spending over any 24 h, by the minute. Pure: `now` is passed in, and never goes back.

    A minute leaves 24 h after its end, so spending counts for at least 24 h, and at most one minute longer.
    Invariant: `total` equals the sum of the minutes.
    """

    __slots__ = ("_minutes", "_now", "_total")

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, Spending]] = deque()
        self._total = NO_SPENDING
        self._now = 0.0

    def restore(self, spent: Iterable[tuple[float, Spending]]) -> None:
        """Count earlier spending, as (time, spending) pairs, each in the minute of its own time."""
        for at, amount in spent:
            minute = int(at // BUCKET_S)
            if at <= self._now and _leaves_at(minute) > self._now:
                self._count(minute, amount)

    def _count(self, minute: int, amount: Spending) -> None:
        """Count into a minute, searching from the end, since most amounts are recent."""
        place = len(self._minutes)
        while place and self._minutes[place - 1][0] > minute:
            place -= 1
        if place and self._minutes[place - 1][0] == minute:
            self._minutes[place - 1] = (minute, self._minutes[place - 1][1].plus(amount))
        else:
            self._minutes.insert(place, (minute, amount))
        self._total = self._total.plus(amount)

    def add(self, spent: Spending, now: float) -> None:
        """Count `spent` at `now`."""
        self._forget(now)
        self._count(int(self._now // BUCKET_S), spent)

    def total(self, now: float) -> Spending:
        """Return what was spent in the 24 h that end at `now`."""
        self._forget(now)
        return self._total

    def when(self, fits: Callable[[Spending], bool], now: float) -> float | None:
        """Return the first time at which `fits` holds for the total, if nothing more is spent; None if never."""
        left = self.total(now)
        if fits(left):
            return self._now
        for minute, spent in self._minutes:
            left = left.less(spent)
            if fits(left):
                return _leaves_at(minute)
        return None

    def _forget(self, now: float) -> None:
        self._now = max(self._now, now)
        while self._minutes and _leaves_at(self._minutes[0][0]) <= self._now:
            self._total = self._total.less(self._minutes.popleft()[1])

    def validate(self) -> None:
        """Assert the invariant of the class, and that minutes are in order."""
        total = NO_SPENDING
        for _, spent in self._minutes:
            total = total.plus(spent)
        assert total == self._total, (total, self._total)
        minutes = [minute for minute, _ in self._minutes]
        assert minutes == sorted(set(minutes)), minutes


def _leaves_at(minute: int) -> float:
    return (minute + 1) * BUCKET_S + DAY_S


_SETTINGS: Final = ("daily_tokens", "daily_requests", "daily_cost")
_PER_UNIT: Final = (1, 1, 1e6)
"""Counted units per unit of the setting: a cost is counted in millionths."""


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """What may be spent in any 24 h; None is no limit.

    Attributes:
        tokens: prompt and completion tokens together.
        cost_micro: cost in millionths of the currency.
    """

    tokens: int | None = None
    requests: int | None = None
    cost_micro: int | None = None

    @property
    def each(self) -> tuple[int | None, int | None, int | None]:
        """The limits in the order of `Spending`."""
        return self.tokens, self.requests, self.cost_micro

    @property
    def any(self) -> bool:
        """True if there is any limit."""
        return self.each != (None, None, None)

    def capped(self, wanted: Spending) -> Spending:
        """Return as much of `wanted` as a whole day allows."""
        return Spending(*(w if most is None else min(w, most) for w, most in zip(wanted, self.each, strict=True)))

    def share(self, part: float) -> Spending:
        """Return a fraction of every limit, rounded up; 0 where there is no limit."""
        return Spending(*(math.ceil(part * (limit or 0)) for limit in self.each))

    def fit(self, spent: Spending) -> bool:
        """Return whether `spent` is within every limit."""
        return not self.broken_by(spent)

    def bound(self, amount: Spending) -> Spending:
        """Return `amount` with 0 where there is no limit."""
        return Spending(*(0 if most is None else part for part, most in zip(amount, self.each, strict=True)))

    def broken_by(self, spent: Spending) -> str:
        """Return the name of the setting whose limit `spent` exceeds first; empty when it exceeds none."""
        for name, part, most in zip(_SETTINGS, spent, self.each, strict=True):
            if most is not None and part > most:
                return name
        return ""

    @classmethod
    def of(cls, budget: ModelBudget) -> DailyLimits:
        """Return the limits of a model's budget."""
        cost = None if budget.daily_cost is None else round(budget.daily_cost * 1e6)
        return cls(budget.daily_tokens, budget.daily_requests, cost)


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A request does not fit into the rest of a day's budget.

    Attributes:
        limit: `daily_tokens`, `daily_requests` or `daily_cost`.
        used: amount settled and reserved; a cost in whole units of the currency, like the next two.
        allowed: the limit's value.
        needed: amount that the request needs.
        until: when it will fit; None when it exceeds a whole day's budget.
    """

    limit: str
    used: float
    allowed: float
    needed: float
    until: float | None


class DailyBudget:
    """The daily budget of one model. Pure; owned by the campaign, shared by all environments.

    Every episode has at most one hold: what it may still spend, counted as if it were spent. A hold grows before a
    request that needs more, shrinks by what the request took, and is dropped with the episode, so that each part of it
    is either settled or released, once. Law: settled and held amounts stay within the limits, except for what requests
    took beyond the hold that they were sent under, and for limits that were lowered.

    Where other processes spend from the same budget, this one has a *grant*, and sends a request once the grant covers
    it. Law: what was spent since the grant and what is in flight stay within the grant, with the same exceptions.
    """

    def __init__(self, limits: DailyLimits) -> None:
        self.limits = limits
        self._window = SpendingWindow()
        self._holds: dict[str, Spending] = {}
        self.held = NO_SPENDING
        """What episodes in progress in this process may still spend."""
        self._flights: dict[str, Spending] = {}
        self._in_flight = NO_SPENDING
        self._others = NO_SPENDING
        self._grant: Spending | None = None
        self.spent = NO_SPENDING
        """What this process has spent since it started."""
        self._spent_before_grant = NO_SPENDING
        self._reported = NO_SPENDING

    # Shared with other processes.

    def report(self) -> Spending:
        """Return what was spent since the last report, and mark it as reported."""
        spent, self._reported = self.spent.less(self._reported), self.spent
        return spent

    def put_back(self, spent: Spending) -> None:
        """Include `spent` in the next report again, because this report may have been lost."""
        self._reported = self._reported.less(spent)

    @property
    def allowed(self) -> Spending:
        """The rest of the grant; 0 where there is no limit."""
        used = self.spent.less(self._spent_before_grant)
        return self.limits.bound((self._grant or NO_SPENDING).less(used))

    @property
    def promised(self) -> Spending:
        """What episodes in progress, of any process, may still spend."""
        return self.held.plus(self._others)

    def room(self, now: float) -> Spending:
        """Return what is left of the day's budget, whichever process holds it; 0 where there is no limit."""
        return self.limits.share(1).less(self.limits.bound(self._window.total(now)))

    def asked(self, kept: Spending) -> None:
        """Reduce the grant to `kept` until the answer to the request for a new one, which is sent now."""
        self._grant, self._spent_before_grant = kept, self.spent

    def granted(self, grant: Spending, others: Spending) -> None:
        """Store a new grant: what may be spent since `asked`, and what the other processes may."""
        self._grant, self._others = grant, others

    def covers(self, key: str, needed: Spending) -> bool:
        """Count a request of `key` that may take `needed` as in flight; return False if the grant does not cover it."""
        before = self._flights.get(key, NO_SPENDING)
        after = before.at_least(needed)
        in_flight = self._in_flight.plus(after.less(before))
        if self._grant is not None and any(self.limits.bound(in_flight.less(self.allowed))):
            return False
        self._flights[key] = after
        self._in_flight = in_flight
        return True

    @property
    def holds_more_than_granted(self) -> bool:
        """Whether holds exceed the grant, so that the other processes do not know of all of them yet."""
        return self._grant is not None and any(self.limits.bound(self.held.less(self.allowed)))

    def _landed(self, key: str) -> None:
        self._in_flight = self._in_flight.less(self._flights.pop(key, NO_SPENDING))

    def restore(self, spent: Iterable[tuple[float, Spending]], now: float) -> None:
        """Count what was spent before `now`, as (time, spending) pairs."""
        self._window.total(now)
        self._window.restore(spent)

    def hold(self, key: str, needed: Spending, now: float) -> Exhausted | None:
        """Hold at least `needed` for `key`; if that does not fit, return why and change nothing."""
        before = self._holds.get(key, NO_SPENDING)
        after = before.at_least(needed)
        grown = after.less(before)
        if not self.limits.fit(after):
            return self._refusal(NO_SPENDING, after, None)  # exceeds the budget of a whole day
        held = self.held.plus(grown)
        if not self.limits.fit(self._window.total(now).plus(self._others).plus(held)):
            return self._exhausted(grown, now)
        self._holds[key] = after
        self.held = held
        return None

    def held_for(self, key: str) -> Spending:
        """Return what is held for `key`."""
        return self._holds.get(key, NO_SPENDING)

    def settle(self, key: str, spent: Spending, now: float) -> None:
        """Count what a request took, and reduce the hold of `key` by it."""
        self._window.add(spent, now)
        self.spent = self.spent.plus(spent)
        self._landed(key)
        before = self._holds.get(key)
        if before is not None:
            after = before.less(spent)
            self._holds[key] = after
            self.held = self.held.less(before.less(after))

    def release(self, key: str) -> bool:
        """Drop what is held for `key`; return whether anything was. Legal more than once."""
        self._landed(key)
        before = self._holds.pop(key, None)
        if before is None:
            return False
        self.held = self.held.less(before)
        return True

    def release_all(self) -> None:
        """Drop everything that is held."""
        self._holds.clear()
        self.held = NO_SPENDING
        self._flights.clear()
        self._in_flight = NO_SPENDING

    def used(self, now: float) -> Spending:
        """Return what all processes spent in the last 24 h, without holds."""
        return self._window.total(now)

    def lacks(self, needed: Spending, now: float) -> Exhausted | None:
        """Return why `needed` would not fit now in addition to all holds; None when it would."""
        if self.limits.fit(self._window.total(now).plus(self.promised).plus(needed)):
            return None
        return self._exhausted(needed, now)

    def _exhausted(self, needed: Spending, now: float) -> Exhausted:
        spent = self._window.total(now).plus(self.promised)
        # Holds are counted as if they stayed. If they alone leave no room, the episodes that have them must end first,
        # at an unknown time; the caller asks again then.
        until = self._when(self.promised.plus(needed), now)
        return self._refusal(spent, needed, self._when(needed, now) if until is None else until)

    def _refusal(self, spent: Spending, needed: Spending, until: float | None) -> Exhausted:
        limit = self.limits.broken_by(spent.plus(needed))
        place = _SETTINGS.index(limit)
        counted = (spent, self.limits.share(1), needed)
        used, allowed, more = (amount[place] / _PER_UNIT[place] for amount in counted)
        return Exhausted(limit, used, allowed, more, until)

    def _when(self, wanted: Spending, now: float) -> float | None:
        return self._window.when(lambda left: self.limits.fit(left.plus(wanted)), now)

    def validate(self) -> None:
        """Assert that `held` is the sum of the holds, and the window's invariant."""
        for parts, whole in ((self._holds, self.held), (self._flights, self._in_flight)):
            together = reduce(Spending.plus, parts.values(), NO_SPENDING)
            assert together == whole, (together, whole)
        self._window.validate()
