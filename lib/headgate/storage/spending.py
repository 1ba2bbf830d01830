"""What the processes of a journal spend of a day that they share: granted before it is spent, and reported after."""

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
"""In the journal's `meta`: counts the exchanges that wrote rows of `spent`. It outlives the rows."""


@dataclass(frozen=True, slots=True)
class SpendingNeed:
    """What one process asks for of one model's day. What is not limited is 0.

    Attributes:
        wanted: what it needs now; what its episodes hold is all of it.
        ahead: what it will soon need beyond that.
        allowed: what is left of its grant.
        room: what is left of the day by what it knows, with all that it spent counted; no grants, its own neither.
    """

    wanted: Spending = NO_SPENDING
    ahead: Spending = NO_SPENDING
    allowed: Spending = NO_SPENDING
    room: Spending = NO_SPENDING

    @property
    def kept(self) -> Spending:
        """What it keeps of its grant whatever the others have: they were told that it may spend this."""
        return _smaller(self.allowed, self.wanted)


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """What one process says about one model.

    Attributes:
        spent: since its last report.
        need: what it asks for; None where nothing is limited, or nothing is asked any more: then it has no grant.
    """

    spent: Spending = NO_SPENDING
    need: SpendingNeed | None = None


@dataclass(frozen=True, slots=True)
class Others:
    """The other processes that ask for a model's day.

    Attributes:
        granted: what they may spend.
        spenders: how many of them have a grant.
    """

    granted: Spending = NO_SPENDING
    count: int = 0
    spenders: int = 0


NO_OTHERS: Final = Others()


@dataclass(frozen=True, slots=True)
class SpendingAnswer:
    """What a process is told of one model.

    Attributes:
        granted: what it may spend before it asks again; None when it did not ask.
        others: the other processes, if it asked.
        news: what they spent, as (seconds since the epoch, spending) pairs, of which it was not told before.
    """

    granted: Spending | None = None
    others: Others = NO_OTHERS
    news: tuple[tuple[float, Spending], ...] = ()


class SpendingBook:
    """Keeps what was spent of every model by the minute, and what each process may spend. Owned by a journal.

    Law: as long as every process keeps within its grant, what is spent within 24 h and all grants together stay within
    the room that the processes state. Invariant: `_known` is what this process was told of a minute, or told itself.
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
        """Count what this process spent; inside of a write transaction. Call `counted` once it is committed."""
        exchange = Exchange(int(now // _MINUTE_S), self._version())
        for model, amount in spent.items():
            self._count(model, amount, exchange)
        self._save_version(exchange)
        return exchange

    def counted(self, exchange: Exchange) -> None:
        """Remember what is counted and committed; what others spent meanwhile is for the next exchange to tell."""
        self._known.update(exchange.known)

    def exchange(self, reports: Mapping[str, SpendingReport], now: float) -> Exchange:
        """Take reports and return what to answer; inside of a write transaction. Call `done` once it is committed."""
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
            # One that was thought dead for a while has no grant any more, whatever it remembers.
            need = report.need if model in mine else replace(report.need, allowed=NO_SPENDING)
            granted = _grant(need, reduce(Spending.plus, news, rest.granted), rest)
            exchange.granted[model] = granted
            if model not in mine or self._grants.get(model) != granted:
                self._db.run("set_grant", (model, self._me, *granted))
        self._save_version(exchange)
        return exchange

    def done(self, exchange: Exchange) -> dict[str, SpendingAnswer]:
        """Remember an exchange that is committed; return the answer for each model that is asked or heard about."""
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
        """Give back every grant; inside of a write transaction."""
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
        """Return the other processes by model, and the models of which this one has a grant; the dead spend nothing."""
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
    """One exchange under way. Owned by the `SpendingBook` that began it. By model, but for `known`.

    Attributes:
        minute: in which what is reported is counted.
        version: of the newest row: a number higher than before it once something `is_counted`.
        known: totals of minutes that are known after it.
        dropped: models of which the process has no grant.
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
    """Return what a process may spend: what it wants where there is room, and of what is left a part, not to ask often.

    `taken` is what others may spend, and what they spent of which the process does not know yet. Half of what is left
    stays for whoever of them asks next.
    """
    room = need.room.less(taken)
    spare = Spending(*(part // (2 * max(1, others.spenders)) for part in room.less(need.wanted)))
    ahead = _smaller(need.ahead, spare) if others.count else spare
    return _smaller(need.wanted, room).plus(ahead).at_least(need.kept)


def _smaller(one: Spending, other: Spending) -> Spending:
    return Spending(*map(min, one, other))
