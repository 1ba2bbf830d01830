"""Calls of engines that are made again: how often, and after which pauses."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from headgate.core import Clock, ErrorKind, SystemClock
from headgate.elastic.errors import EngineError
from headgate.models import GiveUp, RetryPolicy

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 2.0


class Attempts:
    """Makes a call again after a failure that may pass. Owned by one adapter."""

    def __init__(self, attempts: int, clock: Clock | None = None) -> None:
        self._pauses = RetryPolicy(max_attempts=attempts, base_s=_FIRST_PAUSE_S, max_s=_LONGEST_PAUSE_S)
        self._clock = clock or SystemClock()
        self._rng = random.Random()

    async def run(self, call: Callable[[], Awaitable[T]], *, is_last: Callable[[EngineError], bool]) -> T:
        """Return what the call returns, at the latest when it was made so often.

        Args:
            call: makes it once.
            is_last: whether it is not made again after a failure that is not final by itself.

        Raises:
            EngineError: of the last attempt.
        """
        number = 0
        while True:
            number += 1
            try:
                return await call()
            except EngineError as error:
                next_step = self._pauses.decide(number, ErrorKind.CONNECTION, None, self._rng)
                if error.is_final or is_last(error) or isinstance(next_step, GiveUp):
                    raise
            await self._clock.sleep(next_step.after_s)

    async def pause(self, seconds: float) -> None:
        """Wait, by the clock of the adapter."""
        await self._clock.sleep(seconds)
