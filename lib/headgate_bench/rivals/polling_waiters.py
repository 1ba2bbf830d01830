"""Admission whose waiters poll every 50 ms, like those of DataDesigner's engine."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

POLL_S: Final = 0.05


@dataclass(slots=True, eq=False)
class _Waiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_served: bool = False


class PollingAdmission:
    """A limit on requests in flight; waiters are woken when served, and every 50 ms to check deadlines.

    Cheaper than the engine that it represents: first come, first served, without groups, laws, leases or snapshots.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiters: deque[_Waiter] = deque()

    async def acquire(self, number: int) -> None:
        """Wait for a slot."""
        del number
        if self._free and not self._waiters:
            self._free -= 1
            return
        waiter = _Waiter()
        self._waiters.append(waiter)
        while not waiter.is_served:
            try:
                async with asyncio.timeout(POLL_S):
                    await waiter.woken.wait()
            except TimeoutError:
                continue

    def release(self, held: None) -> None:
        """Give the slot to the waiter that has waited longest."""
        del held
        if not self._waiters:
            self._free += 1
            return
        waiter = self._waiters.popleft()
        waiter.is_served = True
        asyncio.get_running_loop().call_soon_threadsafe(waiter.woken.set)
