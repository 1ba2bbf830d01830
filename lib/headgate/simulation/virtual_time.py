"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

EPOCH: Final = 1_767_225_600.0
"""Wall time at which simulations begin: 2026-01-01 00:00 UTC, so that dates in results are the same on every run."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: where a real selector would sleep until the next timer, it moves virtual time there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("the simulation is deadlocked: it waits for something that no timer will trigger")
        self.now += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in which a day passes in the time that its callbacks take. Single-threaded; starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._jumping.now


class LoopClock:
    """The clock of the running loop; in a `VirtualTimeLoop` it is virtual."""

    def __init__(self, epoch: float = EPOCH) -> None:
        self._epoch = epoch
        self._wall_step = 0.0

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the epoch plus the loop's time, plus all steps of the wall clock."""
        return self._epoch + asyncio.get_running_loop().time() + self._wall_step

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of the loop's time."""
        await asyncio.sleep(seconds)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._wall_step += seconds


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
