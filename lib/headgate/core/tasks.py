"""Tasks that must not outlive what started them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended in any way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def first_ended(*works: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Run awaitables as tasks and yield the tasks once one has ended; leaving the context cancels the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        await cancelled(*tasks)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], name: str = "") -> AsyncIterator[None]:
    """Run a coroutine for as long as the context is open; if it fails, asyncio logs it."""
    task = asyncio.create_task(work, name=name or None)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
