"""Time as a port: durations and deadlines are monotonic, wall time is for records and display only."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

DAY_S: Final = 86_400.0


class Clock(Protocol):
    """What the runner reads time from; decision makers never hold one, they are given `now`."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Return seconds since the Unix epoch; may jump when the machine's clock is set."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; a cancel point."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Return `time.monotonic()`."""
        return time.monotonic()

    def wall(self) -> float:
        """Return `time.time()`."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of real time."""
        await asyncio.sleep(seconds)
