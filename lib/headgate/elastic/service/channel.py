"""Chunks of one answer on their way from the engine to the client, a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Self

MOST_BYTES: Final = 256 * 1024
"""An engine that is ahead of its client by so much waits: a slow client costs a bounded amount of memory."""


class Channel:
    """An answer between the task that reads it and the one that passes it on. One writer, one reader.

    The reader gets what was written before the end, then the end: a stop, or the error that it was ended with.
    """

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._has_ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the engine has to wait for the client."""
        return self._bytes > MOST_BYTES

    async def put(self, chunk: bytes) -> None:
        """Pass a chunk on, and wait while too many bytes are under way."""
        self.add(chunk)
        while self.is_full and not self._has_ended:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def add(self, chunk: bytes) -> None:
        """Pass a chunk on."""
        if chunk:
            self._chunks.append(chunk)
            self._bytes += len(chunk)
            _wake(self._reader)

    def end(self, error: Exception | None = None) -> None:
        """Tell the reader that nothing more comes, or why; only the first end counts."""
        if not self._has_ended:
            self._has_ended = True
            self._error = error
            _wake(self._reader)
            _wake(self._writer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        chunk = self._chunks.popleft()
        self._bytes -= len(chunk)
        _wake(self._writer)
        return chunk


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
