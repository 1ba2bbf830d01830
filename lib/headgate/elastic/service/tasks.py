"""The tasks of a service: they end with it, and it ends when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class Tasks:
    """One task group whose tasks are cancelled when it is left. Owned by one service.

    An exception of the body passes as it is; exceptions of tasks come out of the group together.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._all: set[asyncio.Task[None]] = set()
        self._on_end: Callable[[], None] = _nothing

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._on_end()
        self.cancel()
        if isinstance(error, asyncio.CancelledError):  # perhaps the group's own, which only it can tell
            await self._group.__aexit__(kind, error, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def on_end(self, call: Callable[[], None]) -> None:
        """Have something called when no task may be started any more: one has failed, or the group is left."""
        self._on_end = call

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = self._group.create_task(work, name=name)
        self._all.add(task)
        task.add_done_callback(self._done)
        return task

    def fail(self, error: Exception) -> None:
        """End everything with an error that the caller is about to raise: its task may be none of these."""
        self.cancel()
        if asyncio.current_task() not in self._all:
            self.start(_raised(error), "failure")

    def cancel(self) -> None:
        """End all tasks."""
        for task in self._all:
            task.cancel()

    async def cancelled(self) -> None:
        """End all tasks, and return when they have ended."""
        self.cancel()
        others = self._all - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._on_end()


async def _raised(error: Exception) -> None:
    raise error


def _nothing() -> None:
    """Nobody wants to know."""
