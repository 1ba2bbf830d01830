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

    running = 0
    before = gc.get_threshold()
    is_ours = False


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and leave what exists at the beginning out of it; restores the thresholds at the end.

    Where the program has left out objects of its own, that choice stays as it is. Campaigns may overlap: the last one
    restores it, in whichever order they end.
    """
    if not _Choice.running:
        _Choice.before, _Choice.is_ours = gc.get_threshold(), gc.get_freeze_count() == 0
        if _Choice.is_ours:
            gc.collect()
            gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
    _Choice.running += 1
    try:
        yield
    finally:
        _Choice.running -= 1
        if not _Choice.running:
            gc.set_threshold(*_Choice.before)
            if _Choice.is_ours:
                gc.unfreeze()
