"""Garbage collection while a campaign runs: cycles are rare here, and long-lived objects many."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)
"""By default a collection starts every 700 new objects, which a campaign makes in some ten samples; going over what it
holds took a sixth of its CPU time and found next to nothing: tasks and samples hold no cycles."""


class _Choice:
    """What the program had chosen before the first of the campaigns that are running. One per process."""

    def __init__(self) -> None:
        self._running = 0
        self._before = gc.get_threshold()
        self._is_ours = False

    def begin(self) -> None:
        """Leave out what exists, and collect rarely, if no campaign is running yet."""
        self._running += 1
        if self._running > 1:
            return
        self._before = gc.get_threshold()
        self._is_ours = gc.get_freeze_count() == 0
        if self._is_ours:
            gc.collect()
            gc.freeze()
        gc.set_threshold(*_THRESHOLDS)

    def end(self) -> None:
        """Restore it with the last campaign, in whichever order they end."""
        self._running -= 1
        if self._running:
            return
        gc.set_threshold(*self._before)
        if self._is_ours:
            gc.unfreeze()


_choice: Final = _Choice()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and leave what exists at the beginning out of it; restores the thresholds at the end.

    Where the program has left out objects of its own, that choice stays as it is. Campaigns may overlap.
    """
    _choice.begin()
    try:
        yield
    finally:
        _choice.end()
