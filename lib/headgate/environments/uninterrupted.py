"""Cleaning up to the end although the caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(cleaning: Coroutine[Any, Any, T]) -> T:
    """Return what `cleaning` gives. A cancellation that arrives meanwhile waits for its end, then is raised.

    `cleaning` has to be bounded in time by itself.
    """
    task = asyncio.ensure_future(cleaning)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
