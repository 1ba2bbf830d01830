"""Token buckets: how much of what a provider counts per minute may be asked for now. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.items import PressureReason
from headgate.core.rates import NO_RATES, RATE_UNITS, ModelRates, RateLimits, RateNote
from headgate.core.status import RateStatus

if TYPE_CHECKING:
    from headgate.admission.accounts import Account
    from headgate.admission.items import RequestItem

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

_MOST_OWED: Final = 4_096
"""Groups whose debts are remembered."""

REASONS: Final = (
    PressureReason.REQUESTS_PER_MINUTE,
    PressureReason.INPUT_TOKENS_PER_MINUTE,
    PressureReason.OUTPUT_TOKENS_PER_MINUTE,
    PressureReason.TOKENS_PER_MINUTE,
)
"""What presses where a unit has no room, in the order of `RATE_UNITS`."""

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
        share: the part of both that is this process's.
        level: what is left at `at`; below 0 it is owed.
        reserved: of it, what attempts in flight have taken and may give back.
        closed_until: when the provider said that it has room again.
    """

    __slots__ = ("at", "closed_until", "level", "reserved", "share", "stated", "told", "told_at", "unit")

    def __init__(self, unit: int, now: float) -> None:
        self.unit = unit
        self.stated: float | None = None
        self.told: float | None = None
        self.told_at = 0.0
        self.share = 1.0
        self.at = now
        self.level = math.inf
        self.reserved = 0.0
        self.closed_until = -math.inf

    @property
    def limit(self) -> float:
        """What comes in a minute: the smaller of what is stated and what was told; infinite without either."""
        told = math.inf if self.told is None else self.told
        return self.share * (told if self.stated is None or told < self.stated else self.stated)

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
        limit = self.limit
        self.level = min(burst_of(limit), self.level + (now - self.at) * limit / 60) if limit < math.inf else math.inf
        self.at = now

    def opens_at(self, now: float) -> float:
        """Return when there is room by itself; `now` or earlier where there is."""
        level = self.refill(now)
        opens = self.closed_until
        if level < _LEAST:
            opens = max(opens, now + max((1.0 - level) * 60 / self.limit, _LEAST_S))
            if self.told is not None:
                opens = min(opens, self.told_at + NOTE_LASTS_S + _LEAST_S)
        return opens

    def take(self, amount: float, now: float) -> None:
        """Take what an attempt is expected to need."""
        self.level = self.refill(now) - amount
        self.reserved += amount

    def settle(self, taken: float, used: float, now: float) -> None:
        """Take what an attempt used in place of what it was expected to."""
        self.reserved = max(0.0, self.reserved - taken)
        left = self.refill(now) + taken - used
        self.level = min(burst_of(self.limit), left)

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
            self.level = min(self.level, note.remaining)

    def refused(self, wait_s: float | None, now: float) -> None:
        """Take that the provider had no room: none is left, until it says there is or enough has come."""
        self.level = min(self.refill(now), 0.0)
        if wait_s is not None:
            self.closed_until = max(self.closed_until, now + min(wait_s, LONGEST_BLOCK_S))

    def _moved(self) -> None:
        limit = self.limit
        self.level = min(self.level, burst_of(limit)) if limit < math.inf else math.inf

    def validate(self) -> None:
        """Assert what holds of every bucket."""
        limit = self.limit
        assert limit > 0, f"{RATE_UNITS[self.unit]}: a limit of {limit}"
        assert self.level <= burst_of(limit) + 1e-6, f"{RATE_UNITS[self.unit]}: fuller than it may be"
        assert self.reserved >= -1e-6, f"{RATE_UNITS[self.unit]}: more was given back than taken"


def burst_of(limit: float) -> float:
    """Return what a bucket of a limit per minute holds at most: one request, or one token, at least."""
    return max(1.0, limit * BURST_S / 60)


class RateScope:
    """The buckets of one level: a model at its provider, a key, or an organisation. The smallest statement holds.

    Attributes:
        name: `model`, `key of` or `organisation`, and whose it is.
        stated: what the roster says, by the account and the alias that say it.
    """

    __slots__ = ("buckets", "name", "stated")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.buckets = tuple(Bucket(unit, now) for unit in range(len(RATE_UNITS)))
        self.stated: dict[tuple[Account, str], RateLimits] = {}

    def state(self, account: Account, alias: str, limits: RateLimits | None, now: float) -> None:
        """Take the limits that the roster states under an alias; None takes them away."""
        if limits is None:
            self.stated.pop((account, alias), None)
        else:
            self.stated[account, alias] = limits
        for bucket in self.buckets:
            known = [said for each in self.stated.values() if (said := each[bucket.unit]) is not None]
            bucket.state(min(known, default=None), now)

    @property
    def is_bound(self) -> bool:
        """Whether anything limits it."""
        return any(bucket.limit < math.inf for bucket in self.buckets)


class AccountRates:
    """Every bucket that requests of one account take from, and whose they are in turn. Owned by its account.

    Attributes:
        scopes: the model's, its key's, and those of its organisations.
        buckets: those of them that have a limit.
        peers: the accounts that take from any of them, its own among them.
        binding: the unit that had no room last.
        owed: what groups took more than they were charged for when their turn came, in mean requests.
    """

    __slots__ = ("_counted", "_means", "binding", "buckets", "owed", "peers", "scopes")

    def __init__(self) -> None:
        self.scopes: tuple[RateScope, ...] = ()
        self.buckets: tuple[Bucket, ...] = ()
        self.peers: tuple[Account, ...] = ()
        self.binding = 0
        self.owed: dict[str, float] = {}
        self._means = [1.0, 0.0, 0.0, 0.0]
        self._counted = 0

    def collect(self) -> None:
        """Find the buckets that have a limit, and who shares them: after one was stated, told or forgotten."""
        self.buckets = tuple(b for scope in self.scopes for b in scope.buckets if b.limit < math.inf)
        self.peers = tuple(dict.fromkeys(a for s in self.scopes if s.is_bound for a, _ in s.stated))

    def share_out(self, share: float, now: float) -> None:
        """Have a part of every limit."""
        for scope in self.scopes:
            for bucket in scope.buckets:
                bucket.share_out(share, now)

    def opens_at(self, now: float) -> float:
        """Return when all buckets have room; `now` or earlier where they have."""
        opens = -math.inf
        for bucket in self.buckets:
            at = bucket.opens_at(now)
            if at > opens:
                opens = at
                if at > now:
                    self.binding = bucket.unit
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
        for scope in self.scopes:
            for unit in (1, 3):
                stated = scope.buckets[unit].stated
                if stated is not None and item.input_tokens > stated:
                    return (
                        f"a prompt of about {item.input_tokens} tokens is more than the {stated:g} "
                        f"{RATE_UNITS[unit].replace('_', ' ')} that its {scope.name} may take in a minute"
                    )
        return None

    def note(self, outcome: RequestOutcome, now: float) -> bool:
        """Learn from what an answer told; return whether a refusal was for a rate, and not for requests in flight."""
        model = self.scopes[0]
        known = len(self.buckets)
        is_refusal = outcome.kind is OutcomeKind.RATE_LIMITED
        was_rate = False
        for note in outcome.told:
            bucket = model.buckets[note.unit]
            bucket.note(note, now)
            if is_refusal and note.remaining is not None and note.remaining < 1:
                was_rate = True
                bucket.refused(note.reset_s if outcome.retry_after_s is None else outcome.retry_after_s, now)
        if known != sum(1 for _ in self._bound()):
            self.collect()
        return was_rate

    def statuses(self, now: float) -> tuple[RateStatus, ...]:
        """Return where each limit stands."""
        return tuple(
            RateStatus(
                scope=scope.name,
                unit=f"{RATE_UNITS[bucket.unit]}_per_minute",
                limit=bucket.limit,
                left=max(0.0, bucket.refill(now)),
                reserved=bucket.reserved,
                is_told=bucket.told is not None and (bucket.stated is None or bucket.told < bucket.stated),
            )
            for scope, bucket in self._bound()
        )

    def _bound(self) -> Iterator[tuple[RateScope, Bucket]]:
        return ((s, b) for s in self.scopes for b in s.buckets if b.limit < math.inf)

    def validate(self) -> None:
        """Assert what holds of every bucket."""
        for _, bucket in self._bound():
            bucket.validate()


def _used(need: Need, outcome: RequestOutcome) -> Need:
    """Return what an attempt used: what its answer counted, nothing but the request where it was refused.

    One that failed may have been counted; what the provider counted of it nobody says, so its prompt stays taken, and
    its reply where it may have been written.
    """
    _, sent, said, _ = need
    match outcome.kind:
        case OutcomeKind.SUCCESS if outcome.prompt_tokens or outcome.tokens:
            sent, said = float(outcome.prompt_tokens), float(outcome.tokens)
        case OutcomeKind.RATE_LIMITED:
            sent = said = 0.0
        case OutcomeKind.PROVIDER_FAILURE:
            said = 0.0
        case _:
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

    def concern(self, account: Account, rates: ModelRates | None) -> bool:
        """Return whether a statement about an account changes anything."""
        return account.rates is not None or (
            rates is not None and (rates.is_any or _key_scope(account) in self._by_name)
        )

    def state(self, account: Account, alias: str, rates: ModelRates | None, now: float) -> None:
        """Take what the roster states for an account under an alias; None takes it away."""
        said = {} if rates is None else _levels(account, rates)
        for scope in account.rates.scopes if account.rates is not None else ():
            if scope.name not in said:
                scope.state(account, alias, None, now)
        for name, limits in said.items():
            self._scope(name, now).state(account, alias, limits, now)
        if rates is not None and rates.key != NO_RATES:
            key = self._by_name[_key_scope(account)]
            for other in account.provider.accounts.values():
                if not any(owner is other for owner, _ in key.stated):
                    key.state(other, "", NO_RATES, now)
                    self._keep(other, now)
        self._keep(account, now)

    def rates(self, account: Account, now: float) -> AccountRates:
        """Return the limits per minute of an account; with none stated, what its answers tell of is kept there."""
        if account.rates is None:
            self._scope(f"model {account.name}", now).state(account, "", NO_RATES, now)
            self._keep(account, now)
        assert account.rates is not None
        return account.rates

    def leave(self, account: Account) -> None:
        """Forget an account."""
        for scope in account.rates.scopes if account.rates is not None else ():
            scope.stated = {said: limits for said, limits in scope.stated.items() if said[0] is not account}
        self._sweep(account)

    def _scope(self, name: str, now: float) -> RateScope:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = RateScope(name, now)
        return found

    def _keep(self, account: Account, now: float) -> None:
        """Have an account take from the scopes that it is in, the model's first."""
        rates = account.rates = account.rates or AccountRates()
        mine = [s for s in self._by_name.values() if any(owner is account for owner, _ in s.stated)]
        before, rates.scopes = rates.scopes, tuple(sorted(mine, key=lambda scope: not scope.name.startswith("model ")))
        rates.share_out(account.provider.rate_share, now)
        self._sweep(account, *before)

    def _sweep(self, account: Account, *left: RateScope) -> None:
        """Forget levels that nobody is in, and tell the accounts at all others who they share them with."""
        rates = account.rates
        touched = {*left, *(rates.scopes if rates is not None else ())}
        self._by_name = {name: scope for name, scope in self._by_name.items() if scope.stated}
        owners = {owner for scope in touched for owner, _ in scope.stated} | {account}
        for owner in owners:
            if owner.rates is not None:
                owner.rates.collect()


def _key_scope(account: Account) -> str:
    return f"key of {account.name.provider}"


def _levels(account: Account, rates: ModelRates) -> dict[str, RateLimits]:
    said = {f"model {account.name}": rates.own, _key_scope(account): rates.key}
    return said | ({f"organisation {rates.organisation}": rates.shared} if rates.organisation else {})
