"""Requests that are held open until something comes of them, their client hangs up, or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from headgate.jobqueue.server.errors import HungUp

T = TypeVar("T")


class LongPolls:
    """All requests of one server that stand in line. Lives on its event loop.

    Invariant: what is in `_waiting` is not done, or its request is about to take it out.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many requests stand in line."""
        return len(self._waiting)

    async def stand(self, standing: Coroutine[Any, Any, T], receive: Receive) -> T | None:
        """Return what comes of standing in line, or None when the server stops before.

        Args:
            standing: may be cancelled at any moment.
            receive: of the request, whose body has been read.

        Raises:
            HungUp: the client is gone; `standing` was cancelled.
        """
        waiting = asyncio.ensure_future(standing)
        gone = asyncio.ensure_future(_gone(receive))
        self._waiting.add(waiting)
        if self._is_closed:
            waiting.cancel()
        try:
            await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise HungUp
            return None if waiting.cancelled() else waiting.result()
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()
            gone.cancel()
            # Both are ended before the request is: whoever cancels a desk's waiter must let it leave its line.
            await asyncio.gather(waiting, gone, return_exceptions=True)

    def close(self) -> None:
        """Let nobody stand in line any more: those who do are answered that their turn has not come."""
        self._is_closed = True
        for waiting in list(self._waiting):
            waiting.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
