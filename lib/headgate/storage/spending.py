"""The daily budgets that the processes of a journal share: granted before spending, and reported afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

from headgate.core import DAY_S, NO_SPENDING, Spending
from headgate.storage.journal_database import JournalDatabase, JournalTimes, meta_of

_MINUTE_S: Final = 60.0
_KEPT_MINUTES: Final = int(DAY_S // _MINUTE_S) + 2

NOTHING_SPENT: Final[Mapping[str, Spending]] = {}

_VERSION: Final = "spent_version"
"""Key in the journal's `meta` of the number of exchanges that wrote rows of `spent`. It outlives the rows."""


@dataclass(frozen=True, slots=True)
class SpendingNeed:
    """One process's request for a part of one model's daily budget; 0 where there is no limit.

    Attributes:
        wanted: what it needs now, including all holds of its episodes.
        ahead: what it will soon need in addition.
        allowed: the rest of its grant.
        room: the rest of the day's budget as far as it knows, after all its spending, but before any grants.
    """

    wanted: Spending = NO_SPENDING
    ahead: Spending = NO_SPENDING
    allowed: Spending = NO_SPENDING
    room: Spending = NO_SPENDING

    @property
    def kept(self) -> Spending:
        """What it keeps of its grant in any case, since the others already allow for it."""
        return _smaller(self.allowed, self.wanted)


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """One process's report about one model.

    Attributes:
        spent: spending since its last report.
        need: its request; None if there is no limit or nothing more is needed, which drops its grant.
    """

    spent: Spending = NO_SPENDING
    need: SpendingNeed | None = None


@dataclass(frozen=True, slots=True)
class Others:
    """The other processes that request parts of a model's daily budget.

    Attributes:
        granted: what they may spend together.
        spenders: how many of them have a grant above 0.
    """

    granted: Spending = NO_SPENDING
    count: int = 0
    spenders: int = 0


NO_OTHERS: Final = Others()


@dataclass(frozen=True, slots=True)
class SpendingAnswer:
    """The answer to one process about one model.

    Attributes:
        granted: what it may spend before its next request; None if it made none.
        others: the other processes, if it made a request.
        news: others' spending not reported to it before, as (seconds since the epoch, spending) pairs.
    """

    granted: Spending | None = None
    others: Others = NO_OTHERS
    news: tuple[tuple[float, Spending], ...] = ()


class SpendingBook:
    """Keeps the spending of every model by the minute, and each process's grants. Owned by a journal.

    Law: while every process stays within its grant, the spending of 24 h and all grants together stay within the room
    that the processes state. Invariant: `_known` is the total of a minute as this process has read or written it.
    """

    def __init__(self, db: JournalDatabase, me: str, times: JournalTimes) -> None:
        self._db = db
        self._me = me
        self._times = times
        self._known: dict[tuple[str, int], Spending] = {}
        self._grants: dict[str, Spending] = {}
        self._seen = 0
        self._swept = 0

    def count(self, spent: Mapping[str, Spending], now: float) -> Exchange:
        """Count this process's spending, inside a write transaction; call `counted` once it is committed."""
        exchange = Exchange(int(now // _MINUTE_S), self._version())
        for model, amount in spent.items():
            self._count(model, amount, exchange)
        self._save_version(exchange)
        return exchange

    def counted(self, exchange: Exchange) -> None:
        """Remember a committed count; the next exchange reports what others have spent meanwhile."""
        self._known.update(exchange.known)

    def exchange(self, reports: Mapping[str, SpendingReport], now: float) -> Exchange:
        """Process reports and compute the answers, inside a write transaction; call `done` once it is committed."""
        exchange = Exchange(int(now // _MINUTE_S), self._version())
        if exchange.minute != self._swept and (oldest := self._times.oldest_kept(now)) is not None:
            self._db.run("forget_spent", {"minute": oldest})
        for model, minute, *amounts in self._db.run("spent_since", (self._seen,)):
            total = Spending(*amounts)
            fresh = total.less(self._known.get((model, minute), NO_SPENDING))
            exchange.known[model, minute] = total
            if fresh != NO_SPENDING and minute > exchange.minute - _KEPT_MINUTES:
                exchange.news.setdefault(model, []).append((minute * _MINUTE_S, fresh))
        others, mine = self._granted()
        for model, report in reports.items():
            self._count(model, report.spent, exchange)
            if report.need is None:
                exchange.dropped.append(model)
                if model in self._grants:
                    self._db.run("drop_grant", (model, self._me))
                continue
            rest = exchange.others[model] = others.get(model, NO_OTHERS)
            news = [spent for _, spent in exchange.news.get(model, ())]
            # A process that was considered dead for a while has lost its grant, whatever it reports.
            need = report.need if model in mine else replace(report.need, allowed=NO_SPENDING)
            granted = _grant(need, reduce(Spending.plus, news, rest.granted), rest)
            exchange.granted[model] = granted
            if model not in mine or self._grants.get(model) != granted:
                self._db.run("set_grant", (model, self._me, *granted))
        self._save_version(exchange)
        return exchange

    def done(self, exchange: Exchange) -> dict[str, SpendingAnswer]:
        """Remember a committed exchange; return the answer for each model with a request or with news."""
        self._seen = exchange.version
        self._known.update(exchange.known)
        self._grants.update(exchange.granted)
        for model in exchange.dropped:
            self._grants.pop(model, None)
        if self._swept != exchange.minute:
            self._swept = exchange.minute
            self._known = {key: spent for key, spent in self._known.items() if key[1] > exchange.minute - _KEPT_MINUTES}
        return {
            model: SpendingAnswer(
                exchange.granted.get(model),
                exchange.others.get(model, NO_OTHERS),
                tuple(exchange.news.get(model, ())),
            )
            for model in {**exchange.granted, **exchange.news}
        }

    def leave(self) -> None:
        """Give back every grant, inside a write transaction."""
        self._db.run("drop_grants", {"holder": self._me})

    def _version(self) -> int:
        return int(meta_of(self._db, _VERSION) or 0)

    def _save_version(self, exchange: Exchange) -> None:
        if exchange.is_counted:
            self._db.run("set_meta", {"key": _VERSION, "value": str(exchange.version)})

    def _count(self, model: str, spent: Spending, exchange: Exchange) -> None:
        if spent == NO_SPENDING:
            return
        key = (model, exchange.minute)
        if not exchange.is_counted:
            exchange.is_counted = True
            exchange.version += 1
        before = exchange.known.get(key, self._known.get(key, NO_SPENDING))
        exchange.known[key] = before.plus(spent)
        self._db.many("count_spent", [(model, exchange.minute, *spent, exchange.version)])

    def _granted(self) -> tuple[dict[str, Others], set[str]]:
        """Return the other living processes by model, and the models for which this one has a grant."""
        found: dict[str, Others] = {}
        mine: set[str] = set()
        dead: dict[str, bool] = {}
        for model, holder, *amounts in self._db.run("grants").fetchall():
            if holder == self._me:
                mine.add(model)
                continue
            if holder not in dead:
                dead[holder] = self._db.holders.is_dead(holder)
                if dead[holder]:
                    self._db.run("drop_grants", {"holder": holder})
            if not dead[holder]:
                rest, granted = found.get(model, NO_OTHERS), Spending(*amounts)
                spends = granted != NO_SPENDING
                found[model] = Others(rest.granted.plus(granted), rest.count + 1, rest.spenders + spends)
        return found, mine


@dataclass(slots=True)
class Exchange:
    """One exchange in progress. Owned by the `SpendingBook` that started it.

    Attributes:
        minute: the minute in which reported spending is counted.
        version: version of the newest row; one more than before the exchange once `is_counted`.
        known: totals by (model, minute) that are known after it.
        dropped: models for which this process has no grant.
    """

    minute: int
    version: int
    is_counted: bool = False
    known: dict[tuple[str, int], Spending] = field(default_factory=dict)
    news: dict[str, list[tuple[float, Spending]]] = field(default_factory=dict)
    others: dict[str, Others] = field(default_factory=dict)
    granted: dict[str, Spending] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


def _grant(need: SpendingNeed, taken: Spending, others: Others) -> Spending:
    """Return a process's grant: what it wants, as far as there is room, plus a part of the rest to save requests.

    `taken` is what others may spend plus their spending that the process does not know of yet. Half of the rest is left
    for the next request of another process.
    """
    room = need.room.less(taken)
    spare = Spending(*(part // (2 * max(1, others.spenders)) for part in room.less(need.wanted)))
    ahead = _smaller(need.ahead, spare) if others.count else spare
    return _smaller(need.wanted, room).plus(ahead).at_least(need.kept)


def _smaller(one: Spending, other: Spending) -> Spending:
    return Spending(*map(min, one, other))
