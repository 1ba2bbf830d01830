"""What the processes of a journal have learnt of providers' limits: each begins where the others have come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.core import DAY_S, credible
from headgate.core.rates import NO_RATES, RateLimits
from headgate.storage.journal_database import JournalDatabase

_POSSIBLE: Final = {unit: (1 if unit == "requests_per_minute" else 100, 10**9) for unit in RateLimits._fields}
"""What a provider can allow per minute, at least and at most: with fewer tokens one short reply would take minutes."""


class LimitKey(NamedTuple):
    """What a limit belongs to: a provider's address and account, and its name of the model."""

    provider: str
    model: str
    domain: str
    """The kind of requests; or a limit per minute that is learnt for all of them, as `RateLimits` names it."""


@dataclass(frozen=True, slots=True)
class LimitReport:
    """What one process says of a limit.

    Attributes:
        cap: requests in flight that it allows itself at most.
        told: the limit that it last said or was told; None before.
        limit: the number in flight at which the provider said no, or what refusals show of a limit per minute, of this
            process; None when it never did, 0 when it is given up.
        is_rated: whether limits per minute hold for it, of which each process has an equal part.
    """

    cap: int
    told: int | None = None
    limit: int | None = None
    is_rated: bool = False


@dataclass(frozen=True, slots=True)
class LimitShare:
    """What one process may take a provider's limit for: its part of all that is known, and how many share that.

    The limit is None where none is known, and only limits per minute that are not learnt are shared; 0 where it was
    given up. `ignored` is what the journal had in its place that cannot be true.
    """

    limit: int | None
    sharers: int
    ignored: object = None


class LimitBook:
    """Keeps each limit, over all processes that use it. Owned by a journal.

    A process that meets it reports how its own part has changed, and the whole changes by as much: it is never the sum
    of what each takes, so that processes come and go without changing it. What is older than a day, or lies ahead of
    the clock, is forgotten. Bounds: at least one request for each process, at most the caps of all; of a limit per
    minute, what is possible.

    Processes that learn a limit per minute at the same time have each measured a part, and the whole is the sum. One
    that holds less than an equal part cannot give it up for all.
    """

    def __init__(self, db: JournalDatabase, me: str) -> None:
        self._db = db
        self._me = me

    def is_empty(self) -> bool:
        """Return whether nothing is known of any limit."""
        return self._db.run("any_limit").fetchone() is None

    def share(self, reports: Mapping[LimitKey, LimitReport], now: float) -> dict[LimitKey, LimitShare]:
        """Take reports and return the shares of what is known; inside of a write transaction."""
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
        """Return the limits per minute that are learnt, by provider and model."""
        found: dict[tuple[str, ...], RateLimits] = {}
        for key, total in self._known(now).items():
            if key.domain in _POSSIBLE and total:
                found[key[:2]] = found.get(key[:2], NO_RATES)._replace(**{key.domain: total})
        return found

    def _known(self, now: float) -> dict[LimitKey, int]:
        rows = self._db.run("limits")
        return {LimitKey(*key): total for *key, total, at in rows if at > now - DAY_S and credible(at, now) == at}

    def leave(self) -> None:
        """Leave what this process takes to the others; inside of a write transaction."""
        self._db.run("drop_limit_shares", {"holder": self._me})

    def _sharers(self) -> dict[tuple[str, ...], set[str]]:
        """Return the processes that live, by what they share, and by (provider, model) of it."""
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
    """Return whether a report changes the whole."""
    if report.limit is None or report.limit == report.told:
        return False
    if not report.told:
        return is_rate or not total
    return total != 0 if report.limit else report.told * count >= (total or 0)
