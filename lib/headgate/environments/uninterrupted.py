"""Finishes a clean-up even if the caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(cleaning: Coroutine[Any, Any, T]) -> T:
    """Return the result of `cleaning`. A cancellation that arrives meanwhile is raised once it has ended.

    `cleaning` must limit its own duration.
    """
    task = asyncio.ensure_future(cleaning)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
