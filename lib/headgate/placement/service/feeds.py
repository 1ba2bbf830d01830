"""Feeds: which requests have changed, told to the drivers that wait for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress


class Feeds:
    """What has changed for whom, by a number that grows with every change. Owned by the service.

    A driver that asks again with the same number gets the same answer: an answer that was lost costs nothing.
    """

    def __init__(self) -> None:
        self.number = 0
        self._changed: dict[str, OrderedDict[str, int]] = {}
        self._watchers: dict[str, set[str]] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def watch(self, driver: str, request_ids: Iterable[str]) -> None:
        """Have a driver told of requests that are not its own; they are told at once as they stand."""
        for request_id in request_ids:
            self._watchers.setdefault(request_id, set()).add(driver)
            self._note(driver, request_id)

    def retell(self, driver: str, request_ids: Iterable[str]) -> None:
        """Tell a driver of requests of its own anew: it has missed what an earlier ledger told."""
        for request_id in request_ids:
            self._note(driver, request_id)

    def note(self, holder: str, request_id: str, *, is_news: bool = True) -> None:
        """A request has changed; what is no news is told with the next answer, and wakes nobody."""
        for driver in {holder} | self._watchers.get(request_id, set()):
            self._note(driver, request_id, is_news=is_news)

    def forget(self, request_id: str) -> None:
        """A request is not there any more; drivers that had it before its last holder forget it, too."""
        self._watchers.pop(request_id, None)
        for driver, changed in list(self._changed.items()):
            changed.pop(request_id, None)
            if not changed:
                del self._changed[driver]

    def since(self, driver: str, number: int) -> list[str]:
        """Return the requests of a driver that have changed since a number, in the order of their changes."""
        found: list[str] = []
        for request_id, at in reversed(self._changed.get(driver, {}).items()):
            if at <= number:
                break
            found.append(request_id)
        return found[::-1]

    async def wait(self, driver: str, number: int, timeout_s: float) -> list[str]:
        """Return what has changed since a number, as soon as there is something or the time is over."""
        if not (found := self.since(driver, number)) and timeout_s > 0:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(driver, set()).add(woken)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken, timeout_s)
            finally:
                others = self._waiting.get(driver, set())
                others.discard(woken)
                if not others:
                    self._waiting.pop(driver, None)
            found = self.since(driver, number)
        return found

    def wake_all(self) -> None:
        """Answer everybody who waits."""
        for driver in list(self._waiting):
            self.wake(driver)

    def _note(self, driver: str, request_id: str, *, is_news: bool = True) -> None:
        self.number += 1
        changed = self._changed.setdefault(driver, OrderedDict())
        changed[request_id] = self.number
        changed.move_to_end(request_id)
        if is_news:
            self.wake(driver)

    def wake(self, driver: str) -> None:
        """Answer a driver that waits."""
        for woken in self._waiting.pop(driver, set()):
            if not woken.done():
                woken.set_result(None)
