"""What the processes of a journal spend of a day that they share: granted before it is spent, and reported after."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core import DAY_S, NO_SPENDING, Spending
from headgate.storage.holders import Holders
from headgate.storage.statements import statements

_MINUTE_S: Final = 60.0
_KEPT_MINUTES: Final = int(DAY_S // _MINUTE_S) + 2

_VERSION: Final = "spent_version"
"""In the journal's `meta`: counts the exchanges that wrote rows of `spent`. It outlives the rows."""


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """What one process says and asks about one model. What is not limited is 0 everywhere but in `spent`.

    Attributes:
        spent: since its last report.
        allowed: what is left of its grant.
        wanted: what it needs now; what its episodes hold is part of it.
        ahead: what it will soon need beyond that.
        room: what is left of the day by what it knows, with `spent` counted, and all grants, its own too, not.
    """

    spent: Spending = NO_SPENDING
    allowed: Spending = NO_SPENDING
    wanted: Spending = NO_SPENDING
    ahead: Spending = NO_SPENDING
    room: Spending = NO_SPENDING

    @property
    def kept(self) -> Spending:
        """What it keeps of its grant whatever the others have: what they were told that it may spend."""
        return _smaller(self.allowed, self.wanted.plus(self.ahead))


@dataclass(frozen=True, slots=True)
class SpendingAnswer:
    """What a process is told of one model.

    Attributes:
        granted: what it may hold and spend before it asks again.
        others: what the other processes may.
        sharers: how many they are.
        news: what they spent, as (seconds since the epoch, spending) pairs, of which it was not told before.
    """

    granted: Spending = NO_SPENDING
    others: Spending = NO_SPENDING
    sharers: int = 0
    news: tuple[tuple[float, Spending], ...] = ()


class SpendingBook:
    """Keeps what was spent of every model by the minute, and what each process may spend. Owned by a journal.

    Law: as long as every process keeps within its grant, what is spent within 24 h and all grants together stay within
    the room that the processes state. Invariant: `_known` is what this process was told of a minute, or told itself.
    """

    def __init__(self, db: sqlite3.Connection, me: str, holders: Holders) -> None:
        self._db = db
        self._sql = statements()
        self._me = me
        self._holders = holders
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
        self._sweep(exchange.minute)
        for model, minute, *amounts in self._db.execute(self._sql["spent_since"], (self._seen,)):
            total = Spending(*amounts)
            news = total.less(self._known.get((model, minute), NO_SPENDING))
            exchange.known[model, minute] = total
            if news != NO_SPENDING:
                exchange.news.setdefault(model, []).append((minute * _MINUTE_S, news))
        others = self._others()
        for model, report in reports.items():
            self._count(model, report.spent, exchange)
            held, sharers = others.get(model, (NO_SPENDING, 0))
            exchange.others[model] = held, sharers
            granted = _grant(report, held.plus(_sum(exchange.news.get(model, ()))), sharers)
            exchange.granted[model] = granted
            if self._grants.get(model) != granted:
                self._db.execute(self._sql["set_grant"], (model, self._me, *granted))
        self._save_version(exchange)
        return exchange

    def done(self, exchange: Exchange) -> dict[str, SpendingAnswer]:
        """Remember an exchange that is committed; return the answer for each model that is asked or heard about."""
        self._seen = exchange.version
        self._known.update(exchange.known)
        self._grants.update(exchange.granted)
        if self._swept != exchange.minute:
            self._swept = exchange.minute
            self._known = {key: spent for key, spent in self._known.items() if key[1] > exchange.minute - _KEPT_MINUTES}
        return {
            model: SpendingAnswer(
                exchange.granted.get(model, NO_SPENDING),
                *exchange.others.get(model, (NO_SPENDING, 0)),
                tuple(exchange.news.get(model, ())),
            )
            for model in {**exchange.granted, **exchange.news}
        }

    def leave(self) -> None:
        """Give back every grant; inside of a write transaction."""
        self._db.execute(self._sql["drop_grants"], {"holder": self._me})

    def _version(self) -> int:
        found = self._db.execute(self._sql["meta"], {"key": _VERSION}).fetchone()
        return 0 if found is None else int(found[0])

    def _save_version(self, exchange: Exchange) -> None:
        if exchange.version != exchange.began_at:
            self._db.execute(self._sql["set_meta"], {"key": _VERSION, "value": str(exchange.version)})

    def _sweep(self, minute: int) -> None:
        if minute != self._swept:
            self._db.execute(self._sql["forget_spent"], {"minute": minute - _KEPT_MINUTES})

    def _count(self, model: str, spent: Spending, exchange: Exchange) -> None:
        if spent == NO_SPENDING:
            return
        key = (model, exchange.minute)
        if exchange.version == exchange.began_at:
            exchange.version += 1
        before = exchange.known.get(key, self._known.get(key, NO_SPENDING))
        exchange.known[key] = before.plus(spent)
        self._db.execute(self._sql["count_spent"], (model, exchange.minute, *spent, exchange.version))

    def _others(self) -> dict[str, tuple[Spending, int]]:
        """Return what other processes may spend of each model, and how many they are; the dead may spend nothing."""
        found: dict[str, tuple[Spending, int]] = {}
        dead: dict[str, bool] = {}
        for model, holder, *amounts in self._db.execute(self._sql["grants_of_others"], {"holder": self._me}).fetchall():
            if holder not in dead:
                dead[holder] = self._holders.is_dead(holder)
                if dead[holder]:
                    self._db.execute(self._sql["drop_grants"], {"holder": holder})
            if not dead[holder]:
                held, sharers = found.get(model, (NO_SPENDING, 0))
                found[model] = (held.plus(Spending(*amounts)), sharers + 1)
        return found


class Exchange:
    """One exchange under way. Owned by the `SpendingBook` that began it.

    Attributes:
        minute: in which what is reported is counted.
        began_at: version of the newest row before it.
        version: of the newest row after it.
        known: totals of minutes that are known after it.
        news: what others spent, by model.
        others: what others may spend, and how many they are.
        granted: what this process may.
    """

    __slots__ = ("began_at", "granted", "known", "minute", "news", "others", "version")

    def __init__(self, minute: int, version: int) -> None:
        self.minute = minute
        self.began_at = self.version = version
        self.known: dict[tuple[str, int], Spending] = {}
        self.news: dict[str, list[tuple[float, Spending]]] = {}
        self.others: dict[str, tuple[Spending, int]] = {}
        self.granted: dict[str, Spending] = {}


def _grant(report: SpendingReport, taken: Spending, sharers: int) -> Spending:
    """Return what a process may spend: what it wants where there is room, and of what is left a part, not to ask often.

    Args:
        report: of the process.
        taken: what others may spend, and what they spent of which the process does not know yet.
        sharers: how many they are. Half of what is left stays for whoever asks next.
    """
    room = report.room.less(taken)
    spare = Spending(*(part // (2 * max(1, sharers)) for part in room.less(report.wanted)))
    ahead = _smaller(report.ahead, spare) if sharers else spare
    return _smaller(report.wanted, room).plus(ahead).at_least(report.kept)


def _smaller(one: Spending, other: Spending) -> Spending:
    return Spending(*map(min, one, other))


def _sum(spent: tuple[tuple[float, Spending], ...] | list[tuple[float, Spending]]) -> Spending:
    total = NO_SPENDING
    for _, amount in spent:
        total = total.plus(amount)
    return total
