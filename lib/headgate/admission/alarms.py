"""What wakes an event loop when time alone changes something: one timer per loop, never a poll."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Final

from headgate.core import Clock

_EARLY_S: Final = 0.001
"""A timer may fire this much before its time by rounding; it then counts as on time, or it would fire again at once."""


class LoopAlarm:
    """One timer on one event loop. Owned by a `RequestAdmission`; lives as long as the loop is used with it."""

    __slots__ = ("_at", "_clock", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[float], float]) -> None:
        """Prepare an alarm.

        Args:
            loop: where the timer runs.
            clock: of the times that it is set to.
            ring: called on the loop with the time that has come; returns when to ring next, infinite for never.
        """
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._at = math.inf
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether its loop can still run anything."""
        return not self._loop.is_closed()

    def set(self, at: float, *, running: asyncio.AbstractEventLoop | None) -> None:
        """Ring at `at`, if that is earlier than what it is set to. From any thread, told which loop runs in it."""
        if at >= self._at:
            return
        if running is self._loop:
            self._set(at)
        else:
            # A loop that is closed has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._set, at)

    def _set(self, at: float) -> None:
        if at >= self._at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_later(max(0.0, at - self._clock.monotonic()), self._fired)

    def _fired(self) -> None:
        due, self._at, self._handle = self._at, math.inf, None
        now = self._clock.monotonic()
        self._set(self._ring(due if now < due < now + _EARLY_S else now))
