"""Time as a port: durations and deadlines are monotonic, wall time is for records, and for what outlives its process.

A time that is read back was written by a clock that may have been wrong: it is believed as far as it can be true.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

from headgate.core.errors import ClockDisagreesError

DAY_S: Final = 86_400.0

CLOCK_TOLERANCE_S: Final = 300.0
"""Clocks that differ by less agree: what NTP keeps differs by milliseconds, and S3 refuses requests from 900 s on."""


def credible(at: float, now: float, *, ahead_s: float = CLOCK_TOLERANCE_S) -> float:
    """Return a time that was read back, or `now` where it lies further ahead than any right clock can have put it."""
    return at if at <= now + ahead_s else now


def require_agreement(now: float, other: float, owner: str) -> None:
    """Raise `ClockDisagreesError` if this machine's clock says `now` when that of `owner` says `other`."""
    if abs(now - other) > CLOCK_TOLERANCE_S:
        mine, others = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" for at in (now, other))
        raise ClockDisagreesError(
            f"this machine's clock says {mine}, {owner} says {others}; they may differ by {CLOCK_TOLERANCE_S:g} s"
        )


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
    """The machine's clock. A sample takes twenty readings of `monotonic`, which is the function of `time` itself."""

    monotonic = staticmethod(time.monotonic)

    def wall(self) -> float:
        """Return `time.time()`."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of real time."""
        await asyncio.sleep(seconds)
