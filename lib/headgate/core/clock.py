"""Time as a port: durations and deadlines are monotonic; wall time is for records and for what outlives its process.

A stored time was written by a clock that may have been wrong: it is trusted only as far as it can be true.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from headgate.core.errors import ClockDisagreesError, InvalidInputError

DAY_S: Final = 86_400.0

CLOCK_TOLERANCE_S: Final = 300.0
"""Clocks that differ by less agree: NTP keeps them within milliseconds, and S3 refuses requests from 900 s on."""


def credible(at: float, now: float, *, ahead_s: float = CLOCK_TOLERANCE_S) -> float:
    """Return a stored time, or `now` where it is further ahead than any correct clock can have put it."""
    return at if at <= now + ahead_s else now


def require_agreement(now: float, other: float, owner: str) -> None:
    """Raise `ClockDisagreesError` if this machine's clock says `now` when that of `owner` says `other`."""
    if abs(now - other) > CLOCK_TOLERANCE_S:
        mine, others = (utc_text(at, seconds=True) for at in (now, other))
        raise ClockDisagreesError(
            f"this machine's clock says {mine}, {owner} says {others}; they may differ by {CLOCK_TOLERANCE_S:g} s"
        )


class Clock(Protocol):
    """The runner's source of time; decision makers never hold one, they are given `now`."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""

    def wall(self) -> float:
        """Return seconds since the Unix epoch; may jump when the machine's clock is set."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; a cancel point."""


class SystemClock:
    """The machine's clock. A sample reads `monotonic` twenty times, so it is `time.monotonic` itself."""

    monotonic = staticmethod(time.monotonic)

    def wall(self) -> float:
        """Return `time.time()`."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of real time."""
        await asyncio.sleep(seconds)


async def until_set(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until `event` is set, at most `within_s` (None: forever); return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            return await event.wait()
    return False


def utc_text(at: float, *, seconds: bool = False) -> str:
    """Return a wall time in the form of messages, such as `2026-01-31 06:00 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC")


def iso_text(at: float) -> str:
    """Return a wall time in the form of files: ISO 8601 with milliseconds, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)")
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def moment_of(text: str, now: float, *, option: str) -> float:
    """Return the wall time that `text` means: an ISO 8601 date or time (UTC by default), or an age such as `36h`.

    Raises:
        InvalidInputError: if it is neither.
    """
    if ago := _AGO.fullmatch(text.strip()):
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{option} must be a date, a time, or an age such as 36h (got {text!r})",
            next_step="Write it as 2026-01-31, 2026-01-31T06:00Z, 90min, 36h, 7d or 2w.",
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
