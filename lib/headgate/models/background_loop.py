"""A second event loop in its own thread, for work that would hold up the first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_JOIN_S = 5.0


class BackgroundLoop:
    """Runs coroutines in one daemon thread. Open it with `with`; leaving cancels what still runs.

    All of its work shares one loop, so that objects bound to a loop (locks, subprocesses) stay usable between calls.
    """

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, stop = self._started.result()
        loop.call_soon_threadsafe(stop.set)
        # Work that computes without an await cannot be cancelled; the thread is a daemon and ends with the process.
        self._thread.join(_JOIN_S)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work()` returns; a cancellation of the caller reaches it."""
        loop, _ = self._started.result()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    async def _serve(self) -> None:
        stop = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
