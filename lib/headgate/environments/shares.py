"""Fair shares of an environment's scarce slots: models with more than their share have to give slots back to others.

An episode may hold a slot for an arbitrary time: a program sleeps, a game waits for a reply. So queueing alone is not
fair, and slots are *wanted back*: the work in them is aborted and repeated later, which requires that it has no side
effects.
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
"""Key of the current episode's model; empty outside episodes, where work counts as that of one more model."""

_HALF_LIFE_S: Final = 30.0
"""Half-life of a model's charge: use ten minutes ago is forgotten, and unused slots earn no credit."""

_HEAVY_S: Final = 1.0
"""Slot seconds by which a model's charge may exceed twice the smallest one before the model counts as heavy."""


@dataclass(slots=True, eq=False)
class Hold:
    """A slot that a model has requested or holds.

    Attributes:
        since: when the slot was granted, or last used if its holder reports that.
        is_wanted_back: whether its holder was asked to give it back.
        given: completed when the slot is granted.
        give_back_soon: called once when the slot is wanted back, from any thread.
    """

    model: str
    since: float = inf
    is_wanted_back: bool = False
    given: Future[None] = field(default_factory=Future)
    give_back_soon: Callable[[], object] = lambda: None


@dataclass(slots=True)
class _Account:
    """One model's holds and charge; kept while it holds or waits, and until its charge has decayed."""

    held: list[Hold] = field(default_factory=list)
    waiting: list[Hold] = field(default_factory=list)
    charge: float = 0.0
    charged_at: float = 0.0

    def settle(self, now: float) -> None:
        """Charge the slots held until now, and halve the past charge every `_HALF_LIFE_S`."""
        left = 0.5 ** ((now - self.charged_at) / _HALF_LIFE_S)
        self.charge = self.charge * left + len(self.held) * _HALF_LIFE_S * (1 - left)
        self.charged_at = now

    def kept(self) -> list[Hold]:
        return [hold for hold in self.held if not hold.is_wanted_back]


class SharedSlots:
    """Decides which model gets a slot, and which slots are wanted back. Pure; owned by one `FairSlots`.

    A model's share is `size` divided by the number of models that hold or wait, rounded down, and at least 1. The
    waiting model that holds the fewest slots goes first, among equals the one with the smallest charge. A model that
    holds its share gets more only while more than `reserve` slots are free.

    Law: while a model that holds less than its share waits, no other keeps more than its own for longer than
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
        """Slots to which each active model is entitled."""
        return max(1, self.size // max(1, len(self._active())))

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self.size - sum(len(account.held) for account in self._accounts.values())

    def ask(self, hold: Hold, now: float) -> None:
        """Add `hold` to the waiting ones."""
        self._settled(hold.model, now).waiting.append(hold)

    def leave(self, hold: Hold, now: float) -> None:
        """Remove `hold`, granted or waiting; idempotent."""
        account = self._settled(hold.model, now)
        for holds in (account.held, account.waiting):
            if hold in holds:
                holds.remove(hold)

    def grant(self, now: float) -> list[Hold]:
        """Grant free slots; return the holds that got one."""
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
        """Return the holds that are wanted back from now on, and when to check again, None for not by time."""
        wanted: list[Hold] = []
        while self._is_short():
            ripe, later = self._claims(now)  # again after each, since its holder may now be within its share
            if not ripe:
                return wanted, min(later, default=None)
            ripe[0].is_wanted_back = True
            wanted.append(ripe[0])
        return wanted, None

    def is_heavy(self, model: str, now: float) -> bool:
        """Return whether a model's charge clearly exceeds the smallest charge of an active model."""
        for name in list(self._accounts):
            self._settled(name, now)
        charges = [account.charge for account in self._active().values()]
        return self._settled(model, now).charge > 2 * min(charges, default=inf) + _HEAVY_S

    def _active(self) -> dict[str, _Account]:
        return {name: account for name, account in self._accounts.items() if account.held or account.waiting}

    def _is_short(self) -> bool:
        """Return whether waiting models below their share need more slots than are free or wanted back."""
        accounts = self._active().values()
        due = sum(max(0, min(len(account.waiting), self.share - len(account.held))) for account in accounts)
        return due > self.free + sum(hold.is_wanted_back for account in accounts for hold in account.held)

    def _claims(self, now: float) -> tuple[list[Hold], list[float]]:
        """Return the holds that may be wanted back now, best candidate first, and when others become candidates."""
        ripe: list[tuple[tuple[float, float, float], Hold]] = []
        later: list[float] = []
        turn_s = self._turn_s if len(self._active()) > self.size else inf
        for account in self._active().values():
            excess = len(account.kept()) - self.share
            for hold in account.kept():
                ripe_at = hold.since + (self._patience_s if excess > 0 else turn_s)
                if now >= ripe_at:
                    # The model with the most excess loses its latest hold, which wastes least. In turns, the oldest.
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
    """`SharedSlots` for coroutines of any event loop and for threads. Lives as long as the owner of the slots."""

    def __init__(self, size: int, *, patience_s: float = 0.0, turn_s: float = inf, reserve: int = 0) -> None:
        self._shared = SharedSlots(size, patience_s=patience_s, turn_s=turn_s, reserve=reserve)
        self._lock = threading.RLock()  # protects all state; reentrant, since `give_back_soon` may give back at once
        self._look_at = inf

    async def take(self, model: str, give_back_soon: Callable[[], object]) -> Hold:
        """Wait for a slot of `model` and return it; a cancel point.

        Args:
            model: the model whose share the slot counts towards.
            give_back_soon: called in any thread when the slot is wanted back; must return at once.
        """
        hold = Hold(model, give_back_soon=give_back_soon)
        try:
            with self._lock:
                self._shared.ask(hold, time.monotonic())
                self._decide()
            await asyncio.wrap_future(hold.given)
        except BaseException:
            self.give_back(hold)  # it may just have been granted
            raise
        return hold

    def give_back(self, hold: Hold) -> None:
        """Give a slot back, or stop waiting for it; idempotent, callable from any thread."""
        with self._lock:
            self._shared.leave(hold, time.monotonic())
            self._decide()

    def is_heavy(self, model: str) -> bool:
        """Return whether a model's charge clearly exceeds the smallest charge of an active model."""
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
