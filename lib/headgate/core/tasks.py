"""Tasks that are not to outlive what began them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and return when they have ended, however they did."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def first_ended(*works: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Give the tasks of several pieces of work once one has ended; leaving the context ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        await cancelled(*tasks)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], name: str = "") -> AsyncIterator[None]:
    """Do a piece of work while the context lasts, and no longer; if it fails, asyncio's log says so."""
    task = asyncio.create_task(work, name=name or None)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
