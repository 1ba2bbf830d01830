"""What the processes of a journal have learnt about providers' limits: each starts from the others' findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.core import DAY_S, credible
from headgate.core.rates import NO_RATES, RateLimits
from headgate.storage.journal_database import JournalDatabase

_POSSIBLE: Final = {unit: (1 if unit == "requests_per_minute" else 100, 10**9) for unit in RateLimits._fields}
"""Plausible range of limits per minute: with fewer tokens, one short reply would take minutes."""


class LimitKey(NamedTuple):
    """Identifies a limit: a provider's address and account, its name for the model, and the kind of limit."""

    provider: str
    model: str
    domain: str
    """The kind of requests; or the field of `RateLimits` for a limit per minute learnt for all requests."""


@dataclass(frozen=True, slots=True)
class LimitReport:
    """One process's report on a limit.

    Attributes:
        cap: maximum requests in flight that it allows itself.
        told: its limit in the last exchange; None before the first.
        limit: requests in flight at which the provider refused this process, or its part of a limit per minute that
            refusals reveal; None if the provider never refused, 0 if the limit is given up.
        is_rated: whether limits per minute apply to it, of which each process gets an equal part.
    """

    cap: int
    told: int | None = None
    limit: int | None = None
    is_rated: bool = False


@dataclass(frozen=True, slots=True)
class LimitShare:
    """One process's part of a provider's limit, and how many processes share it.

    The limit is None if none is known and only configured limits per minute are shared; 0 if it was given up.
    `ignored` is an implausible value of the journal that was discarded.
    """

    limit: int | None
    sharers: int
    ignored: object = None


class LimitBook:
    """Keeps each limit for all processes that use it. Owned by a journal.

    A process that hits a limit reports how its own part has changed, and the total changes by that much. The total is
    not the sum of the parts in use, so processes come and go without changing it. Entries older than a day, or in the
    future, are ignored. Bounds: at least one request per process, at most the sum of the caps; for a limit per minute,
    the plausible range.

    Processes that learn a limit per minute at the same time have each measured a part, and the total is their sum. A
    process with less than an equal part cannot give up the limit for all.
    """

    def __init__(self, db: JournalDatabase, me: str) -> None:
        self._db = db
        self._me = me

    def is_empty(self) -> bool:
        """Return whether no limit is known."""
        return self._db.run("any_limit").fetchone() is None

    def share(self, reports: Mapping[LimitKey, LimitReport], now: float) -> dict[LimitKey, LimitShare]:
        """Process reports and return the shares of known limits; call it inside a write transaction."""
        known = self._known(now)
        sharers = self._sharers()
        shares: dict[LimitKey, LimitShare] = {}
        for key, report in reports.items():
            total, told, ignored = known.get(key), report.told, None
            if total is None and report.limit is None and not report.is_rated:
                continue
            is_rate = key.domain in _POSSIBLE
            group = sharers.get(key[:2] if is_rate else key, set())
            count = len(group | {self._me})
            least, most = _POSSIBLE.get(key.domain, (1, count * report.cap))
            if is_rate and total and not (isinstance(total, int) and least <= total <= most):
                ignored, total = total, None
                self._db.run("set_limit", (*key, 0, 0.0))
            if _is_news(report, total, count, is_rate=is_rate):
                limit = report.limit or 0
                changed = total + limit - (told or 0) if total else limit * (count if told or not is_rate else 1)
                total = max(count, least, min(changed, most)) if limit else 0
                self._db.run("set_limit", (*key, total, now))
            if self._me not in group:
                self._db.run("share_limit", (*key, self._me))
            shares[key] = LimitShare(total and max(1, min(total, most) // count), count, ignored)
        return shares

    def rates(self, now: float) -> dict[tuple[str, ...], RateLimits]:
        """Return the learnt limits per minute, by provider and model."""
        found: dict[tuple[str, ...], RateLimits] = {}
        for key, total in self._known(now).items():
            if key.domain in _POSSIBLE and total:
                found[key[:2]] = found.get(key[:2], NO_RATES)._replace(**{key.domain: total})
        return found

    def _known(self, now: float) -> dict[LimitKey, int]:
        rows = self._db.run("limits")
        return {LimitKey(*key): total for *key, total, at in rows if at > now - DAY_S and credible(at, now) == at}

    def leave(self) -> None:
        """Release this process's shares; call it inside a write transaction."""
        self._db.run("drop_limit_shares", {"holder": self._me})

    def _sharers(self) -> dict[tuple[str, ...], set[str]]:
        """Return the living processes by the limit that they share, and by its (provider, model)."""
        found: dict[tuple[str, ...], set[str]] = {}
        dead: dict[str, bool] = {}
        for *key, holder in self._db.run("limit_sharers").fetchall():
            if holder not in dead:
                dead[holder] = self._db.holders.is_dead(holder)
                if dead[holder]:
                    self._db.run("drop_limit_shares", {"holder": holder})
            for shared in () if dead[holder] else (LimitKey(*key), tuple(key[:2])):
                found.setdefault(shared, set()).add(holder)
        return found


def _is_news(report: LimitReport, total: int | None, count: int, *, is_rate: bool) -> bool:
    """Return whether a report changes the total."""
    if report.limit is None or report.limit == report.told:
        return False
    if not report.told:
        return is_rate or not total
    return total != 0 if report.limit else report.told * count >= (total or 0)
