"""A bell that rings when something has changed, so that whoever waits for a state need not look again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """Wakes everybody who waits for a state. Owned by one engine; lives in one event loop."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Have everybody who waits look at the state."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once `is_so()`; it is asked now and whenever the bell has rung."""
        while not is_so():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
