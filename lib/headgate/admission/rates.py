"""Token buckets: how much of what a provider counts per minute may be asked for now. Pure."""

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
"""A bucket holds what comes in so many seconds. A provider's own holds a minute: the rest is left for what estimates
miss, for requests that others send, and for providers that count by the minute of the clock."""

NOTE_LASTS_S: Final = 60.0
"""A limit that answers told of is forgotten when none has told of it for so long: a wrong one does not stay."""

LONGEST_BLOCK_S: Final = 60.0
"""A limit per minute has room again within a minute, whatever a refusal asks for."""

_LEAST: Final = 1.0 - 1e-6
"""A bucket that holds less than one request, or one token, has no room."""

_LEAST_S: Final = 1e-6
"""Rounding may leave a bucket a trifle below its mark when its time has come."""

_WEIGHT: Final = 0.002
"""Of the newest request in a running mean, at least: groups are charged by it, and a faster one would favour those
whose large requests have just moved it."""

_OF_PROMPTS: Final = (1, 3)
"""The units in which a prompt alone may be more than a minute's."""

_OF_REPLIES: Final = (2, 3)
"""The units that an attempt takes from when it is answered."""

_MOST_OWED: Final = 4_096
"""Groups whose debts are remembered."""

REASONS: Final = (
    PressureReason.REQUESTS_PER_MINUTE,
    PressureReason.INPUT_TOKENS_PER_MINUTE,
    PressureReason.OUTPUT_TOKENS_PER_MINUTE,
    PressureReason.TOKENS_PER_MINUTE,
)
"""What presses where a unit has no room, in the order of `RATE_UNITS`."""

MOVED_S: Final = 1.0
"""With each request the moment moves at which a limit per minute has room again: others hear of it when it has moved by
so much, and not at all of a limit that is reached for less."""

Need = tuple[float, float, float, float]
"""What one attempt takes of each unit."""


class Bucket:
    """What is left of one unit under one limit. It refills evenly, is taken from before an attempt, settled after it.

    An attempt is let through when there is room for one token, and may overdraw: so no request is too large for it, and
    who follows waits until the debt is paid. What is let through in t seconds is at most what comes in t + `BURST_S`
    seconds, and the last attempt's.

    Attributes:
        stated: per minute, by the roster, of all processes.
        told: per minute, by the provider's answers.
        learnt: per minute, by refusals that told nothing, of this process; infinite without.
        share: the part of what is stated and told that is this process's.
        limit: what comes in a minute: its share of the smaller of what is stated and what was told, or what is learnt
            where that is less; infinite without.
        level: what is left at `at`; below 0 it is owed.
        reserved: of it, what attempts in flight have taken and may give back.
        closed_until: when the provider said that it has room again.
        opens: when it has room by itself, in the past where it has: time alone does not move it. It is looked at far
            more often than anything is taken.
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
        """Let time pass; return what is left."""
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
        """Return when there is room by itself; `now` or earlier where there is."""
        if self.told is not None:
            self.refill(now)
        return self.opens

    def _set_level(self, level: float) -> None:
        """Take a level, at the time up to which it was refilled, and find out when there is room."""
        self.level = level
        opens = self.closed_until
        if level < _LEAST:
            by_itself = self.at + max((1.0 - level) * 60 / self.limit, _LEAST_S)
            opens = max(opens, by_itself)
            if self.told is not None:
                opens = min(opens, self.told_at + NOTE_LASTS_S + _LEAST_S)
        self.opens = opens

    def take(self, amount: float, now: float) -> None:
        """Take what an attempt is expected to need."""
        level = self.refill(now) - amount
        self.reserved += amount
        if level < _LEAST:
            self._set_level(level)
        else:
            self.level = level

    def settle(self, taken: float, used: float, now: float) -> None:
        """Take what an attempt used in place of what it was expected to."""
        reserved = self.reserved - taken
        self.reserved = max(0.0, reserved)
        left = self.refill(now) + taken - used
        self._set_level(min(self._most, left))

    def state(self, per_minute: float | None, now: float) -> None:
        """Take the limit that the roster states."""
        self.refill(now)
        self.stated = per_minute
        self._moved()

    def share_out(self, share: float, now: float) -> None:
        """Take the part that is this process's."""
        self.refill(now)
        self.share = share
        self._moved()

    def note(self, note: RateNote, now: float) -> None:
        """Take what an answer told: it can lower what may be sent, and never raise it above what is stated."""
        self.refill(now)
        if note.limit is not None:
            self.told, self.told_at = note.limit, now
            self._moved()
        if note.remaining is not None:
            self._set_level(min(self.level, note.remaining))

    def refused(self, wait_s: float | None, now: float) -> None:
        """Take that the provider had no room: none is left, until it says there is or enough has come."""
        if wait_s is not None:
            self.closed_until = max(self.closed_until, now + min(wait_s, LONGEST_BLOCK_S))
        self._set_level(min(self.refill(now), 0.0))

    def learn(self, per_minute: float, now: float, debt: float | None) -> None:
        """Take the limit that refusals showed, infinite for none; with a debt, nothing is left of it."""
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
        """Assert what holds of every bucket."""
        assert self.limit > 0, f"{RATE_UNITS[self.unit]}: a limit of {self.limit}"
        assert self.level <= burst_of(self.limit) + 1e-6, f"{RATE_UNITS[self.unit]}: fuller than it may be"
        assert self.reserved >= -1e-6, f"{RATE_UNITS[self.unit]}: more was given back than taken"


def burst_of(limit: float) -> float:
    """Return what a bucket of a limit per minute holds at most: one request, or one token, at least."""
    return max(1.0, limit * BURST_S / 60)


def _opens_at(buckets: Iterable[Bucket], now: float) -> float:
    """Return when all of some buckets have room; `now` or earlier where they have."""
    opens = -math.inf
    for bucket in buckets:
        at = bucket.opens if bucket.told is None else bucket.opens_at(now)
        opens = max(opens, at)
    return opens


class RateScope:
    """The buckets of one level: a model at its provider, a key, or an organisation. The smallest statement holds.

    Attributes:
        name: `model`, `key of` or `organisation`, and whose it is.
        members: who takes from it, and what the roster says of it under each of their aliases.
        bound: those of its buckets that have a limit.
        providers: the providers of the members, with how many of them each has.
        due_at: when the controller looks at it next without being asked.
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
        """Take the limits that the roster states under an alias of a member; None takes them away."""
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
        """Find the buckets that have a limit, after one was stated, told or forgotten; return whether it is others."""
        before, self.bound = self.bound, tuple(bucket for bucket in self.buckets if bucket.limit < math.inf)
        return self.bound != before

    def share_out(self, now: float) -> None:
        """Have a part of every limit: that of the provider which most processes use."""
        share = min((provider.rate_share for provider in self.providers), default=1.0)
        for bucket in self.buckets:
            bucket.share_out(share, now)

    def opens_at(self, now: float) -> float:
        """Return when all buckets have room; `now` or earlier where they have."""
        return _opens_at(self.bound, now)

    def has_moved(self, opens_at: float, now: float) -> bool:
        """Return whether its members are to hear when it has room again; they are taken to hear it with that."""
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
        """Whether its members have heard that it has no room."""
        return self._told_until > -math.inf

    def validate(self) -> None:
        """Assert that it knows its members, and that the smallest statement holds."""
        assert self.members, f"{self.name} is kept for nobody"
        assert self.providers == Counter(account.provider for account in self.members), f"{self.name}: providers"
        for bucket in self.buckets:
            said = [limits[bucket.unit] for each in self.members.values() for limits in each.values()]
            known = [limit for limit in said if limit is not None]
            assert bucket.stated == min(known, default=None), f"{self.name}: not the smallest statement"
            bucket.validate()


class AccountRates:
    """Every bucket that requests of one account take from, and whose they are in turn. Owned by its account.

    Attributes:
        scopes: the model's, its key's, and those of its organisations, by name.
        buckets: those of them that have a limit.
        shared: the scopes with a limit that other accounts take from, too.
        binding: the unit that had no room last.
        owed: what groups took more than they were charged for when their turn came, in mean requests.
    """

    __slots__ = ("_alone", "_counted", "_means", "_own", "binding", "buckets", "owed", "scopes", "shared")

    def __init__(self, own: str) -> None:
        """Begin without limits; `own` is the name of the model's scope."""
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
        """Find the buckets that have a limit, after one was stated, told or forgotten."""
        self.buckets = tuple(bucket for scope in self.scopes.values() for bucket in scope.bound)
        self.shared = tuple(scope for name, scope in self.scopes.items() if name != self._own and scope.bound)
        self._alone = tuple(bucket for bucket in self.buckets if bucket.scope not in self.shared)

    def opens_alone_at(self, now: float) -> float:
        """Return when the buckets have room that no other account takes from; `now` or earlier where they have."""
        return _opens_at(self._alone, now)

    def opens_at(self, now: float) -> float:
        """Return when all buckets have room; `now` or earlier where they have."""
        opens = _opens_at(self.buckets, now)
        if opens > now:
            self.binding = next(bucket.unit for bucket in self.buckets if bucket.opens == opens)
        return opens

    def need(self, item: RequestItem) -> Need:
        """Return what an attempt probably needs: what its sender says, else what requests usually took."""
        sent = item.input_tokens or self._means[1]
        said = item.output_tokens or self._means[2]
        return (1.0, sent, said, sent + said)

    def take(self, item: RequestItem, now: float) -> Need:
        """Take what an attempt probably needs, and return it."""
        need = self.need(item)
        for bucket in self.buckets:
            bucket.take(need[bucket.unit], now)
        return need

    def settle(self, need: Need, buckets: tuple[Bucket, ...], outcome: RequestOutcome, now: float) -> Need:
        """Put what an attempt used in the place of what was taken for it; return what it used."""
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
        """The unit that groups are charged in: the one that is scarce, once a mean of it is known."""
        return self.binding if self._means[self.binding] else 0

    def charge(self, group: str, need: Need) -> float:
        """Return what a group is charged for a request in the unit that is scarce, in mean requests; debts included."""
        if not self.charged:
            return 1.0
        mean = self._means[self.binding]
        due = need[self.binding] / mean + self.owed.pop(group, 0.0)
        least = 0.01
        if due < least:
            self.owed[group] = due - least
        return max(due, least)

    def correct(self, group: str, unit: int, difference: float) -> None:
        """Note that a group took so much more, or less, of a unit than it was charged for."""
        if len(self.owed) > _MOST_OWED:
            self.owed.clear()
        self.owed[group] = self.owed.get(group, 0.0) + difference / (self._means[unit] or 1.0)

    def too_large(self, item: RequestItem) -> str | None:
        """Return why a request can never be sent: its prompt alone is more than a minute's tokens as stated."""
        tokens = item.input_tokens
        for bucket in self.buckets if tokens else ():
            if bucket.unit in _OF_PROMPTS and bucket.stated is not None and tokens > bucket.stated:
                return (
                    f"a prompt of about {tokens} tokens is more than the {bucket.stated:g} "
                    f"{RATE_UNITS[bucket.unit].replace('_', ' ')} that its {bucket.scope.name} may take in a minute"
                )
        return None

    def statuses(self, learner: RateLearner | None, now: float) -> tuple[RateStatus, ...]:
        """Return where each limit stands."""
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
    """Return what an attempt used: what its answer counted, nothing but the request where it was refused.

    One that failed may have been counted; what the provider counted of it nobody says, so its prompt stays taken, and
    its reply where it may have been written.
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
    """The levels at which limits per minute hold, and who takes from each. Owned by the accounts.

    An account without limits has none, and costs nothing: it joins when something is stated for it, or for its key, or
    when an answer tells of a limit.
    """

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, RateScope] = {}

    def state(self, account: Account, alias: str, rates: ModelRates | None, now: float) -> None:
        """Take what the roster states for an account under an alias; None takes it away."""
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
        """Learn from what an answer told; return whether a refusal was for a rate, and not for requests in flight.

        What it told is kept for the model alone: which of the levels a provider means it does not say.
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
        """Return the scope of a model, which an account without limits joins."""
        own = _own_scope(account)
        if account.rates is None or own not in account.rates.scopes:
            self._say(own, account, "", NO_RATES, now)
        assert account.rates is not None
        return account.rates.scopes[own]

    def learn(self, account: Account, learner: RateLearner, now: float, *, is_empty: bool) -> None:
        """Take the limit that refusals of an account show; where nothing is left, what is in flight is still owed."""
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
        """Have its part of every limit that holds for a provider."""
        shared = {s: None for a in provider.accounts.values() if a.rates is not None for s in a.rates.scopes.values()}
        for scope in shared:
            scope.share_out(now)

    def leave(self, account: Account, now: float) -> None:
        """Forget an account."""
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
        """Assert that levels and accounts know of each other, and what holds of each level."""
        found = {(name, account) for name, scope in self._by_name.items() for account in scope.members}
        known = {(name, a) for a in accounts if a.rates is not None for name in a.rates.scopes}
        assert found == known, "a level and an account do not know of each other"
        for scope in self._by_name.values():
            scope.validate()


def _own_scope(account: Account) -> str:
    return f"model {account.name}"
