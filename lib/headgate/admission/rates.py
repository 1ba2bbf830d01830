"""Token buckets: how many of the units that a provider limits per minute may be used now. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.items import PressureReason
from headgate.core.rates import NO_RATES, RATE_UNITS, ModelRates, RateLimits, RateNote
from headgate.core.status import RateStatus

if TYPE_CHECKING:
    from headgate.admission.accounts import Account, Provider
    from headgate.admission.items import RequestItem
    from headgate.admission.rate_learner import RateLearner

BURST_S: Final = 10.0
"""A bucket holds at most what refills in this time. A provider's own holds a minute's worth: the rest is left for
errors of estimates, for requests of other senders, and for providers that count by the clock's minute."""

NOTE_LASTS_S: Final = 60.0
"""A limit stated in answers is forgotten when none has stated it for this long, so a wrong one does not stay."""

LONGEST_BLOCK_S: Final = 60.0
"""A limit per minute has room again within a minute, however long a wait a refusal asks for."""

_LEAST: Final = 1.0 - 1e-6
"""A bucket with less than one request, or one token, has no room."""

_LEAST_S: Final = 1e-6
"""Rounding may leave a bucket slightly below its mark when its time has come."""

_WEIGHT: Final = 0.002
"""Minimum weight of the newest request in a running mean: groups are charged by that mean, and a faster one would
favour groups whose large requests have just moved it."""

_OF_PROMPTS: Final = (1, 3)
"""The units of which a prompt alone may need more than a minute's worth."""

_OF_REPLIES: Final = (2, 3)
"""The units that an attempt uses once it is answered."""

_MOST_OWED: Final = 4_096
"""Number of groups whose debts are remembered."""

REASONS: Final = (
    PressureReason.REQUESTS_PER_MINUTE,
    PressureReason.INPUT_TOKENS_PER_MINUTE,
    PressureReason.OUTPUT_TOKENS_PER_MINUTE,
    PressureReason.TOKENS_PER_MINUTE,
)
"""The pressure reason of each unit without room, in the order of `RATE_UNITS`."""

MOVED_S: Final = 1.0
"""The time at which a limit per minute has room again moves with each request: watchers are told when it has moved by
this much, and not at all about a limit that is exhausted for less."""

Need = tuple[float, float, float, float]
"""How much one attempt takes of each unit."""


class Bucket:
    """The remaining amount of one unit under one limit. It refills evenly; attempts take from it and settle afterwards.

    An attempt is admitted when there is room for one token, and may overdraw the bucket: so no request is too large for
    it, and later ones wait until the debt is repaid. In t seconds it admits at most what refills in t + `BURST_S`
    seconds, plus the last attempt.

    Attributes:
        stated: limit per minute in the roster, for all processes.
        told: limit per minute in the provider's answers.
        learnt: this process's limit per minute, learnt from refusals that stated none; infinite without.
        share: this process's share of the stated and told limits.
        limit: refill per minute: its share of the smaller of the stated and the told limit, or the learnt limit if that
            is less; infinite without any.
        level: the amount left at the time `at`; negative for a debt.
        reserved: the part taken by attempts in flight, which they may give back.
        closed_until: the time until which the provider refuses, as it said.
        opens: when it will have room if nothing more is taken, in the past if it has room; the passage of time does not
            change it. It is read far more often than anything is taken.
    """

    __slots__ = (
        "_most", "at", "closed_until", "learnt", "level", "limit", "opens", "reserved", "scope", "share", "stated",
        "told", "told_at", "unit",
    )  # fmt: skip

    def __init__(self, scope: RateScope, unit: int, now: float) -> None:
        self.scope = scope
        self.unit = unit
        self.stated: float | None = None
        self.told: float | None = None
        self.told_at = 0.0
        self.learnt = math.inf
        self.share = 1.0
        self.limit = self._most = self.level = math.inf
        self.at = now
        self.reserved = 0.0
        self.closed_until = self.opens = -math.inf

    def refill(self, now: float) -> float:
        """Refill the bucket up to `now`; return the level."""
        if self.told is not None and now - self.told_at > NOTE_LASTS_S:
            self._fill(min(now, self.told_at + NOTE_LASTS_S))
            self.told = None
            self._moved()
        if now > self.at:
            self._fill(now)
        return self.level

    def _fill(self, now: float) -> None:
        if self.limit < math.inf:
            filled = self.level + (now - self.at) * self.limit / 60
            self.level = min(self._most, filled)
        self.at = now

    def opens_at(self, now: float) -> float:
        """Return when it will have room if nothing more is taken; `now` or earlier if it has room."""
        if self.told is not None:
            self.refill(now)
        return self.opens

    def _set_level(self, level: float) -> None:
        """Set the level as of the last refill, and compute when there is room."""
        self.level = level
        opens = self.closed_until
        if level < _LEAST:
            by_itself = self.at + max((1.0 - level) * 60 / self.limit, _LEAST_S)
            opens = max(opens, by_itself)
            if self.told is not None:
                opens = min(opens, self.told_at + NOTE_LASTS_S + _LEAST_S)
        self.opens = opens

    def take(self, amount: float, now: float) -> None:
        """Take the amount that an attempt is expected to need."""
        level = self.refill(now) - amount
        self.reserved += amount
        if level < _LEAST:
            self._set_level(level)
        else:
            self.level = level

    def settle(self, taken: float, used: float, now: float) -> None:
        """Replace the amount taken for an attempt by the amount that it used."""
        reserved = self.reserved - taken
        self.reserved = max(0.0, reserved)
        left = self.refill(now) + taken - used
        self._set_level(min(self._most, left))

    def state(self, per_minute: float | None, now: float) -> None:
        """Set the limit in the roster."""
        self.refill(now)
        self.stated = per_minute
        self._moved()

    def share_out(self, share: float, now: float) -> None:
        """Set this process's share."""
        self.refill(now)
        self.share = share
        self._moved()

    def note(self, note: RateNote, now: float) -> None:
        """Apply the limits in an answer: they can lower what may be sent, but never raise it above the stated limit."""
        self.refill(now)
        if note.limit is not None:
            self.told, self.told_at = note.limit, now
            self._moved()
        if note.remaining is not None:
            self._set_level(min(self.level, note.remaining))

    def refused(self, wait_s: float | None, now: float) -> None:
        """Apply a refusal: nothing is left until the wait that the provider asks for ends, or enough has refilled."""
        if wait_s is not None:
            self.closed_until = max(self.closed_until, now + min(wait_s, LONGEST_BLOCK_S))
        self._set_level(min(self.refill(now), 0.0))

    def learn(self, per_minute: float, now: float, debt: float | None) -> None:
        """Set the limit learnt from refusals, infinite for none; with a debt, the level falls to minus that debt."""
        self.refill(now)
        self.learnt = per_minute
        self._moved()
        if debt is not None:
            self._set_level(min(self.level, -debt))

    def _moved(self) -> None:
        told = math.inf if self.told is None else self.told
        self.limit = min(self.learnt, self.share * (told if self.stated is None else min(told, self.stated)))
        self._most = burst_of(self.limit)
        self._set_level(min(self.level, self._most) if self.limit < math.inf else math.inf)

    def validate(self) -> None:
        """Assert the invariants of a bucket."""
        assert self.limit > 0, f"{RATE_UNITS[self.unit]}: a limit of {self.limit}"
        assert self.level <= burst_of(self.limit) + 1e-6, f"{RATE_UNITS[self.unit]}: fuller than it may be"
        assert self.reserved >= -1e-6, f"{RATE_UNITS[self.unit]}: more was given back than taken"


def burst_of(limit: float) -> float:
    """Return the most that a bucket with a limit per minute holds: at least one request, or one token."""
    return max(1.0, limit * BURST_S / 60)


def _opens_at(buckets: Iterable[Bucket], now: float) -> float:
    """Return when all of some buckets have room; `now` or earlier if they have."""
    opens = -math.inf
    for bucket in buckets:
        at = bucket.opens if bucket.told is None else bucket.opens_at(now)
        opens = max(opens, at)
    return opens


class RateScope:
    """The buckets of one level: a model at its provider, a key, or an organisation. The smallest stated limit applies.

    Attributes:
        name: `model`, `key of` or `organisation`, and its name.
        members: the accounts that take from it, with the limits that the roster states under each of their aliases.
        bound: the buckets that have a limit.
        providers: the members' providers, with the number of members of each.
        due_at: when the controller will look at it again unprompted.
    """

    __slots__ = ("_said", "_told_until", "bound", "buckets", "due_at", "members", "name", "providers")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.buckets = tuple(Bucket(self, unit, now) for unit in range(len(RATE_UNITS)))
        self.bound: tuple[Bucket, ...] = ()
        self.members: dict[Account, dict[str, RateLimits]] = {}
        self.providers: Counter[Provider] = Counter()
        self.due_at = math.inf
        self._said: tuple[Counter[int], ...] = tuple(Counter() for _ in RATE_UNITS)
        self._told_until = -math.inf

    def state(self, account: Account, alias: str, limits: RateLimits | None, now: float) -> None:
        """Set the limits that the roster states under an alias of a member; None removes them."""
        said = self.members.get(account)
        if said is None:
            if limits is None:
                return
            said = self.members[account] = {}
            self.providers[account.provider] += 1
        before = said.pop(alias, NO_RATES)
        if limits is not None:
            said[alias] = limits
        elif not said:
            del self.members[account]
            self.providers[account.provider] -= 1
            self.providers += Counter()
        for bucket, counted, old, new in zip(self.buckets, self._said, before, limits or NO_RATES, strict=True):
            if old == new:
                continue
            if old is not None:
                counted[old] -= 1
                if not counted[old]:
                    del counted[old]
            if new is not None:
                counted[new] += 1
            bucket.state(min(counted, default=None), now)

    def collect(self) -> bool:
        """Collect the buckets with a limit, after one was stated, told or forgotten; return whether they changed."""
        before, self.bound = self.bound, tuple(bucket for bucket in self.buckets if bucket.limit < math.inf)
        return self.bound != before

    def share_out(self, now: float) -> None:
        """Apply the process's share of every limit: that of the provider that the most processes use."""
        share = min((provider.rate_share for provider in self.providers), default=1.0)
        for bucket in self.buckets:
            bucket.share_out(share, now)

    def opens_at(self, now: float) -> float:
        """Return when all buckets have room; `now` or earlier if they have."""
        return _opens_at(self.bound, now)

    def has_moved(self, opens_at: float, now: float) -> bool:
        """Return whether to tell the members when it has room again; if so, that counts as told."""
        told_until = self._told_until
        if opens_at <= now:
            self._told_until = -math.inf
            return told_until > -math.inf
        if abs(opens_at - max(told_until, now)) < MOVED_S / 2:
            return False
        self._told_until = opens_at
        return True

    @property
    def is_told(self) -> bool:
        """Whether its members have been told that it has no room."""
        return self._told_until > -math.inf

    def validate(self) -> None:
        """Assert that its members are consistent, and that the smallest stated limit applies."""
        assert self.members, f"{self.name} is kept for nobody"
        assert self.providers == Counter(account.provider for account in self.members), f"{self.name}: providers"
        for bucket in self.buckets:
            said = [limits[bucket.unit] for each in self.members.values() for limits in each.values()]
            known = [limit for limit in said if limit is not None]
            assert bucket.stated == min(known, default=None), f"{self.name}: not the smallest statement"
            bucket.validate()


class AccountRates:
    """The buckets from which requests of one account take, and the debts of its groups. Owned by its account.

    Attributes:
        scopes: the scopes of the model, its key and its organisations, by name.
        buckets: their buckets that have a limit.
        shared: the scopes with a limit from which other accounts also take.
        binding: the unit that last had no room.
        owed: usage of groups beyond what they were charged when served, in mean requests.
    """

    __slots__ = ("_alone", "_counted", "_means", "_own", "binding", "buckets", "owed", "scopes", "shared")

    def __init__(self, own: str) -> None:
        """Start without limits; `own` is the name of the model's scope."""
        self._own = own
        self.scopes: dict[str, RateScope] = {}
        self.buckets: tuple[Bucket, ...] = ()
        self.shared: tuple[RateScope, ...] = ()
        self._alone: tuple[Bucket, ...] = ()
        self.binding = 0
        self.owed: dict[str, float] = {}
        self._means = [1.0, 0.0, 0.0, 0.0]
        self._counted = 0

    def collect(self) -> None:
        """Collect the buckets with a limit, after one was stated, told or forgotten."""
        self.buckets = tuple(bucket for scope in self.scopes.values() for bucket in scope.bound)
        self.shared = tuple(scope for name, scope in self.scopes.items() if name != self._own and scope.bound)
        self._alone = tuple(bucket for bucket in self.buckets if bucket.scope not in self.shared)

    def opens_alone_at(self, now: float) -> float:
        """Return when the buckets of this account alone have room; `now` or earlier if they have."""
        return _opens_at(self._alone, now)

    def opens_at(self, now: float) -> float:
        """Return when all buckets have room; `now` or earlier if they have."""
        opens = _opens_at(self.buckets, now)
        if opens > now:
            self.binding = next(bucket.unit for bucket in self.buckets if bucket.opens == opens)
        return opens

    def need(self, item: RequestItem) -> Need:
        """Return an attempt's probable need: as its sender estimates, else as usual for earlier requests."""
        sent = item.input_tokens or self._means[1]
        said = item.output_tokens or self._means[2]
        return (1.0, sent, said, sent + said)

    def take(self, item: RequestItem, now: float) -> Need:
        """Take an attempt's probable need, and return it."""
        need = self.need(item)
        for bucket in self.buckets:
            bucket.take(need[bucket.unit], now)
        return need

    def settle(self, need: Need, buckets: tuple[Bucket, ...], outcome: RequestOutcome, now: float) -> Need:
        """Replace the need taken for an attempt by its actual usage; return the usage."""
        used = _used(need, outcome)
        for bucket in buckets:
            bucket.settle(need[bucket.unit], used[bucket.unit], now)
        if outcome.kind is OutcomeKind.SUCCESS:
            self._counted += 1
            weight, means = max(_WEIGHT, 1 / self._counted), self._means
            for unit in (1, 2, 3):
                means[unit] += weight * (used[unit] - means[unit])
        return used

    @property
    def charged(self) -> int:
        """The unit in which groups are charged: the scarce one, once its mean is known, else requests."""
        return self.binding if self._means[self.binding] else 0

    def charge(self, group: str, need: Need) -> float:
        """Return a group's charge for a request, in mean requests of the scarce unit; debts included."""
        if not self.charged:
            return 1.0
        mean = self._means[self.binding]
        due = need[self.binding] / mean + self.owed.pop(group, 0.0)
        least = 0.01
        if due < least:
            self.owed[group] = due - least
        return max(due, least)

    def correct(self, group: str, unit: int, difference: float) -> None:
        """Record how much more, or less, of a unit a group used than it was charged for."""
        if len(self.owed) > _MOST_OWED:
            self.owed.clear()
        self.owed[group] = self.owed.get(group, 0.0) + difference / (self._means[unit] or 1.0)

    def too_large(self, item: RequestItem) -> str | None:
        """Return why a request can never be sent: its prompt alone exceeds a stated limit of tokens per minute."""
        tokens = item.input_tokens
        for bucket in self.buckets if tokens else ():
            if bucket.unit in _OF_PROMPTS and bucket.stated is not None and tokens > bucket.stated:
                return (
                    f"a prompt of about {tokens} tokens is more than the {bucket.stated:g} "
                    f"{RATE_UNITS[bucket.unit].replace('_', ' ')} that its {bucket.scope.name} may take in a minute"
                )
        return None

    def statuses(self, learner: RateLearner | None, now: float) -> tuple[RateStatus, ...]:
        """Return the status of each limit."""
        return tuple(
            RateStatus(
                scope=bucket.scope.name,
                unit=f"{RATE_UNITS[bucket.unit]}_per_minute",
                limit=bucket.limit,
                share=bucket.share,
                left=max(0.0, bucket.refill(now)),
                reserved=bucket.reserved,
                is_told=bucket.told is not None and (bucket.stated is None or bucket.told < bucket.stated),
                is_learnt=bucket.learnt <= bucket.limit,
                learnt=bucket.learnt if bucket.learnt < math.inf else None,
                is_heard=bucket.learnt < math.inf and learner is not None and learner.is_heard,
            )
            for bucket in self.buckets
            if bucket.limit < math.inf
        )


def _used(need: Need, outcome: RequestOutcome) -> Need:
    """Return what an attempt used: as its answer counts it, or only the request if it was refused.

    The provider may have counted a failed attempt, and does not say how much, so its prompt stays taken, and its reply
    too where it may have been generated.
    """
    _, sent, said, _ = need
    kind = outcome.kind
    if kind is OutcomeKind.SUCCESS and (outcome.prompt_tokens or outcome.tokens):
        sent, said = float(outcome.prompt_tokens), float(outcome.tokens)
    elif kind is OutcomeKind.RATE_LIMITED:
        sent = said = 0.0
    elif kind is OutcomeKind.PROVIDER_FAILURE:
        said = 0.0
    else:
        return need
    return (1.0, sent, said, sent + said)


class RateScopes:
    """The levels at which limits per minute apply, and the accounts that take from each. Owned by the accounts.

    An account without limits has no scope, and costs nothing: it joins one when a limit is stated for it or its key, or
    when an answer states a limit.
    """

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, RateScope] = {}

    def state(self, account: Account, alias: str, rates: ModelRates | None, now: float) -> None:
        """Set what the roster states for an account under an alias; None removes it."""
        key = f"key of {account.name.provider}"
        is_new_key = key not in self._by_name
        if account.rates is None and (rates is None or (is_new_key and not rates.is_any)):
            return
        said: dict[str, RateLimits] = {}
        if rates is not None:
            said[_own_scope(account)] = rates.own
            if not is_new_key or rates.key != NO_RATES:
                said[key] = rates.key
            if rates.organisation:
                said[f"organisation {rates.organisation}"] = rates.shared
        for name in () if account.rates is None else tuple(account.rates.scopes):
            if name not in said:
                self._say(name, account, alias, None, now)
        for name, limits in said.items():
            self._say(name, account, alias, limits, now)
        if is_new_key and key in said:
            for other in account.provider.accounts.values():
                self._say(key, other, "", NO_RATES, now)

    def note(self, account: Account, outcome: RequestOutcome, now: float) -> bool:
        """Learn from the limits in an answer; return whether a refusal was for a rate, not for requests in flight.

        These limits apply to the model alone: the provider does not say which level it means.
        """
        scope = self._own(account, now)
        was_rate = False
        for note in outcome.told:
            bucket = scope.buckets[note.unit]
            bucket.note(note, now)
            if outcome.kind is OutcomeKind.RATE_LIMITED and note.remaining is not None and note.remaining < 1:
                was_rate = True
                bucket.refused(note.reset_s if outcome.retry_after_s is None else outcome.retry_after_s, now)
        self._collect(scope)
        return was_rate

    def _own(self, account: Account, now: float) -> RateScope:
        """Return the scope of a model; an account without limits joins it."""
        own = _own_scope(account)
        if account.rates is None or own not in account.rates.scopes:
            self._say(own, account, "", NO_RATES, now)
        assert account.rates is not None
        return account.rates.scopes[own]

    def learn(self, account: Account, learner: RateLearner, now: float, *, is_empty: bool) -> None:
        """Apply the limit learnt from an account's refusals; if nothing is left, usage in flight is a debt."""
        scope = self._own(account, now)
        for bucket in scope.buckets:
            if bucket.unit != learner.unit:
                bucket.learn(math.inf, now, None)
                continue
            debt = None
            if is_empty:
                owed = max(bucket.reserved, account.in_flight * learner.mean_reply)
                debt = (owed if bucket.unit in _OF_REPLIES else 0.0) + learner.pause_s * learner.limit / 60
            bucket.learn(learner.limit, now, debt)
        self._collect(scope)

    def share(self, provider: Provider, now: float) -> None:
        """Apply the process's share to every limit of a provider."""
        shared = {s: None for a in provider.accounts.values() if a.rates is not None for s in a.rates.scopes.values()}
        for scope in shared:
            scope.share_out(now)

    def leave(self, account: Account, now: float) -> None:
        """Remove an account."""
        for name, scope in () if account.rates is None else tuple(account.rates.scopes.items()):
            for alias in tuple(scope.members[account]):
                self._say(name, account, alias, None, now)

    def _say(self, name: str, account: Account, alias: str, limits: RateLimits | None, now: float) -> None:
        scope = self._by_name.get(name)
        if scope is None:
            scope = self._by_name[name] = RateScope(name, now)
        rates = account.rates = account.rates or AccountRates(_own_scope(account))
        scope.state(account, alias, limits, now)
        if account in scope.members:
            rates.scopes[name] = scope
        else:
            rates.scopes.pop(name, None)
        scope.share_out(now)
        rates.collect()
        self._collect(scope)
        if not scope.members:
            del self._by_name[name]

    def _collect(self, scope: RateScope) -> None:
        for member in scope.members if scope.collect() else ():
            assert member.rates is not None
            member.rates.collect()

    def validate(self, accounts: Iterator[Account]) -> None:
        """Assert that levels and accounts are consistent, and the invariants of each level."""
        found = {(name, account) for name, scope in self._by_name.items() for account in scope.members}
        known = {(name, a) for a in accounts if a.rates is not None for name in a.rates.scopes}
        assert found == known, "a level and an account do not know of each other"
        for scope in self._by_name.values():
            scope.validate()


def _own_scope(account: Account) -> str:
    return f"model {account.name}"
