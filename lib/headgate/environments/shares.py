"""Shares of what an environment has few of: slots that models hold in turn, and get back from who has more than others.

An episode may hold a slot for as long as its model likes: a program sleeps, a game waits for a reply. So order alone is
not fair, and slots are *wanted back*: what was under way in them is done again later, which is possible where it had
no effect on anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Final

MODEL: Final[ContextVar[str]] = ContextVar("MODEL", default="")
"""Key of the model whose episode this is; empty outside of episodes, whose work counts as one more model's."""

_HALF_LIFE_S: Final = 30.0
"""Of what a model is charged: what it held ten minutes ago is forgotten, and what it did not hold is no credit."""

_HEAVY_S: Final = 1.0
"""Slot seconds that a model may be ahead of the others before it is called heavy."""


@dataclass(slots=True, eq=False)
class Hold:
    """A slot that a model asked for, and may have been given.

    Attributes:
        since: when it was given, or last used where its holder says so.
        is_wanted_back: whether its holder was asked to give it back.
        given: done once it was given.
        give_back_soon: called once when it is wanted back, from any thread.
    """

    model: str
    since: float = inf
    is_wanted_back: bool = False
    given: Future[None] = field(default_factory=Future)
    give_back_soon: Callable[[], object] = lambda: None


@dataclass(slots=True)
class _Account:
    """What one model has: kept while it holds or waits, and until its charge is forgotten."""

    held: list[Hold] = field(default_factory=list)
    waiting: list[Hold] = field(default_factory=list)
    charge: float = 0.0
    charged_at: float = 0.0

    def settle(self, now: float) -> None:
        """Charge what was held until now, and forget the past by half every `_HALF_LIFE_S`."""
        left = 0.5 ** ((now - self.charged_at) / _HALF_LIFE_S)
        self.charge = self.charge * left + len(self.held) * _HALF_LIFE_S * (1 - left)
        self.charged_at = now

    def kept(self) -> list[Hold]:
        return [hold for hold in self.held if not hold.is_wanted_back]


class SharedSlots:
    """Decides who gets which slot, and whose are wanted back. Pure and synchronous; owned by one `FairSlots`.

    The share of a model is `size` by the number of models that hold or wait, rounded down, and 1 at least. The waiting
    model that holds the fewest goes first, among equals the one that held the least of late. A model that holds its
    share gets more only while more than `reserve` slots stay free for others.

    Law: while a model waits that holds less than its share, no other keeps more than its own for longer than
    `patience_s`. With more models than slots, where all may have their share, a hold is wanted back after `turn_s`.
    """

    def __init__(self, size: int, *, patience_s: float = 0.0, turn_s: float = inf, reserve: int = 0) -> None:
        self.size: Final = size
        self._patience_s = patience_s
        self._turn_s = turn_s
        self._reserve = reserve
        self._accounts: dict[str, _Account] = {}

    @property
    def share(self) -> int:
        """Slots that each model has a right to."""
        return max(1, self.size // max(1, len(self._active())))

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self.size - sum(len(account.held) for account in self._accounts.values())

    def ask(self, hold: Hold, now: float) -> None:
        """Let `hold` wait."""
        self._settled(hold.model, now).waiting.append(hold)

    def leave(self, hold: Hold, now: float) -> None:
        """Take `hold` out, given or not; twice is as once."""
        account = self._settled(hold.model, now)
        for holds in (account.held, account.waiting):
            if hold in holds:
                holds.remove(hold)

    def grant(self, now: float) -> list[Hold]:
        """Return the holds that are given now."""
        granted: list[Hold] = []
        while (free := self.free) > 0:
            waiting = [account for account in self._active().values() if account.waiting]
            if not waiting:
                break
            first = min(waiting, key=lambda account: (len(account.held), account.charge))
            if len(first.held) >= self.share and len(self._active()) > 1 and free <= self._reserve:
                break
            hold = first.waiting.pop(0)
            self._settled(hold.model, now).held.append(hold)
            hold.since = now
            granted.append(hold)
        return granted

    def reclaim(self, now: float) -> tuple[list[Hold], float | None]:
        """Return the holds that are wanted back now, and when to look again."""
        wanted: list[Hold] = []
        while self._is_short():
            ripe, later = self._claims(now)  # anew for each: whoever gave one back may hold no more than its share now
            if not ripe:
                return wanted, min(later, default=None)
            ripe[0].is_wanted_back = True
            wanted.append(ripe[0])
        return wanted, None

    def is_heavy(self, model: str, now: float) -> bool:
        """Return whether a model has held clearly more of late than the active one that held least."""
        for name in list(self._accounts):
            self._settled(name, now)
        charges = [account.charge for account in self._active().values()]
        return self._settled(model, now).charge > 2 * min(charges, default=inf) + _HEAVY_S

    def _active(self) -> dict[str, _Account]:
        return {name: account for name, account in self._accounts.items() if account.held or account.waiting}

    def _is_short(self) -> bool:
        """Return whether more slots are due to models below their share than are free or wanted back."""
        accounts = self._active().values()
        due = sum(max(0, min(len(account.waiting), self.share - len(account.held))) for account in accounts)
        return due > self.free + sum(hold.is_wanted_back for account in accounts for hold in account.held)

    def _claims(self, now: float) -> tuple[list[Hold], list[float]]:
        """Return whose slot may be wanted back, first who should lose it, and when those to come may be."""
        ripe: list[tuple[tuple[float, float, float], Hold]] = []
        later: list[float] = []
        turn_s = self._turn_s if len(self._active()) > self.size else inf
        for account in self._active().values():
            excess = len(account.kept()) - self.share
            for hold in account.kept():
                ripe_at = hold.since + (self._patience_s if excess > 0 else turn_s)
                if now >= ripe_at:
                    # Who has most, and of that what was begun last: the least is lost. In turns, what was begun first.
                    ripe.append(((-max(0, excess), -account.charge, -hold.since if excess > 0 else hold.since), hold))
                elif ripe_at < inf:
                    later.append(ripe_at)
        return [hold for _, hold in sorted(ripe, key=lambda pair: pair[0])], later

    def _settled(self, model: str, now: float) -> _Account:
        account = self._accounts.get(model)
        if account is None:
            forgotten = [
                name for name, one in self._accounts.items() if not (one.held or one.waiting) and one.charge < 0.01
            ]
            for name in forgotten:
                del self._accounts[name]
            account = self._accounts[model] = _Account(charged_at=now)
        account.settle(now)
        return account


class FairSlots:
    """`SharedSlots` for coroutines of any event loop and for threads. Lives as long as what has the slots."""

    def __init__(self, size: int, *, patience_s: float = 0.0, turn_s: float = inf, reserve: int = 0) -> None:
        self._shared = SharedSlots(size, patience_s=patience_s, turn_s=turn_s, reserve=reserve)
        self._lock = threading.RLock()  # protects what is here; reentrant, since who is asked may give back at once
        self._look_at = inf

    async def take(self, model: str, give_back_soon: Callable[[], object]) -> Hold:
        """Return a slot for `model`, when it is its turn; waiting for it is a cancel point.

        Args:
            model: whose share it is of.
            give_back_soon: called in any thread when others have a better right to it; it is to return at once.
        """
        hold = Hold(model, give_back_soon=give_back_soon)
        try:
            with self._lock:
                self._shared.ask(hold, time.monotonic())
                self._decide()
            await asyncio.wrap_future(hold.given)
        except BaseException:
            self.give_back(hold)  # it may have been given at this very moment
            raise
        return hold

    def give_back(self, hold: Hold) -> None:
        """Give a slot back, or stop waiting for it; legal more than once, from any thread."""
        with self._lock:
            self._shared.leave(hold, time.monotonic())
            self._decide()

    def is_heavy(self, model: str) -> bool:
        """Return whether a model has held clearly more of late than another one that is active."""
        with self._lock:
            return self._shared.is_heavy(model, time.monotonic())

    def _decide(self) -> None:
        now = time.monotonic()
        for hold in self._shared.grant(now):
            if hold.given.set_running_or_notify_cancel():
                hold.given.set_result(None)
        wanted, look_at = self._shared.reclaim(now)
        for hold in wanted:
            with contextlib.suppress(RuntimeError):  # its event loop has ended
                hold.give_back_soon()
        if look_at is not None and look_at < self._look_at:
            self._look_at = look_at
            timer = threading.Timer(look_at - now, self._look)
            timer.daemon = True
            timer.start()

    def _look(self) -> None:
        with self._lock:
            self._look_at = inf
            self._decide()
