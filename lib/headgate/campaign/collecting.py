"""Garbage collection while a campaign runs: cycles are rare here, and long-lived objects many."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)
"""By default a collection starts every 700 new objects, which a campaign makes in some ten samples; going over what it
holds took a sixth of its CPU time and found next to nothing: tasks and samples hold no cycles."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and leave what exists at the beginning out of it; restores the thresholds at the end.

    Where the program has left out objects of its own, that choice stays as it is.
    """
    before = gc.get_threshold()
    is_ours = gc.get_freeze_count() == 0
    if is_ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if is_ours:
            gc.unfreeze()
