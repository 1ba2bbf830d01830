"""What the processes of a journal have learnt of providers' limits: each begins where the others have come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headgate.core import DAY_S, credible
from headgate.storage.journal_database import JournalDatabase


class LimitKey(NamedTuple):
    """What a limit belongs to: a provider's address and account, its name of the model, and the kind of requests."""

    provider: str
    model: str
    domain: str


@dataclass(frozen=True, slots=True)
class LimitReport:
    """What one process says of a limit.

    Attributes:
        cap: requests in flight that it allows itself at most.
        told: the ceiling that it last said or was told; None before.
        ceiling: the number in flight at which the provider said no; None when it never did.
        is_rated: whether limits per minute hold for it, of which each process has an equal part.
    """

    cap: int
    told: int | None = None
    ceiling: int | None = None
    is_rated: bool = False


@dataclass(frozen=True, slots=True)
class LimitShare:
    """What one process may take a provider's ceiling for: its part of all that is known, and how many share that.

    The ceiling is None where none is known, and only limits per minute are shared.
    """

    ceiling: int | None
    sharers: int


class LimitBook:
    """Keeps the ceiling of each limit, over all processes that use it. Owned by a journal.

    A process that meets it reports how its own ceiling has changed, and the whole changes by as much: it is never the
    sum of what each takes, so that processes come and go without changing it. What is older than a day, or lies ahead
    of the clock, is forgotten. Bounds: at least one request for each process, at most the caps of all.
    """

    def __init__(self, db: JournalDatabase, me: str) -> None:
        self._db = db
        self._me = me

    def is_empty(self) -> bool:
        """Return whether nothing is known of any limit."""
        return self._db.run("any_limit").fetchone() is None

    def share(self, reports: Mapping[LimitKey, LimitReport], now: float) -> dict[LimitKey, LimitShare]:
        """Take reports and return the shares of what is known; inside of a write transaction."""
        known = {
            LimitKey(*key): total
            for *key, total, at in self._db.run("limits")
            if at > now - DAY_S and credible(at, now) == at
        }
        sharers = self._sharers()
        shares: dict[LimitKey, LimitShare] = {}
        for key, report in reports.items():
            group = sharers.get(key, set())
            count = len(group | {self._me})
            total = known.get(key)
            if report.ceiling is not None and report.ceiling != report.told and (report.told or total is None):
                changed = report.ceiling * count if total is None else total + report.ceiling - (report.told or 0)
                total = max(count, min(changed, count * report.cap))
                self._db.run("set_limit", (*key, total, now))
            if total is None and not report.is_rated:
                continue
            if self._me not in group:
                self._db.run("share_limit", (*key, self._me))
            ceiling = None if total is None else max(1, min(report.cap, total // count))
            shares[key] = LimitShare(ceiling, count)
        return shares

    def leave(self) -> None:
        """Leave what this process takes to the others; inside of a write transaction."""
        self._db.run("drop_limit_shares", {"holder": self._me})

    def _sharers(self) -> dict[LimitKey, set[str]]:
        """Return the processes that live, by what they share."""
        found: dict[LimitKey, set[str]] = {}
        dead: dict[str, bool] = {}
        for *key, holder in self._db.run("limit_sharers").fetchall():
            if holder not in dead:
                dead[holder] = self._db.holders.is_dead(holder)
                if dead[holder]:
                    self._db.run("drop_limit_shares", {"holder": holder})
            if not dead[holder]:
                found.setdefault(LimitKey(*key), set()).add(holder)
        return found
