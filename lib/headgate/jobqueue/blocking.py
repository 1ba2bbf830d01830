"""Blocking facades: the methods of an asyncio class for programs that do not use asyncio."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from copy import copy
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from headgate.net.event_loop import LoopThread


class Client(Protocol):
    """An asyncio class that can have a facade; a copy of it has the same options and no connection."""

    async def close(self) -> None:
        """Close its connections; may be called twice."""

    def __copy__(self) -> Self: ...


P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=Client)


class BlockingFacade(Generic[A]):
    """An object whose methods, made by `blocking`, run those of an asyncio object on a loop."""

    def __init__(self, wrapped: A, loop: LoopThread) -> None:
        self._asynchronous = wrapped
        self._loop = loop

    def _awake(self) -> A:
        """Return the asyncio object, ready for work on the loop."""
        return self._asynchronous


class BlockingClient(BlockingFacade[C]):
    """The facade of a client, with a loop of its own; a context manager.

    Its thread starts with the first call and ends with `close`, or when the object is garbage-collected. A forked
    process continues with connections of its own.
    """

    def __init__(self, wrapped: C, name: str) -> None:
        super().__init__(wrapped, LoopThread(name))

    def _awake(self) -> C:
        if self._loop.pid != os.getpid():
            self._asynchronous, self._loop = copy(self._asynchronous), LoopThread(self._loop.name)
        return self._asynchronous

    def close(self) -> None:
        """Close its connections; may be called twice."""
        closing = self._awake().close()
        try:
            self._loop.run(closing)
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a coroutine method as a blocking one of a `BlockingFacade`, with its signature and docstring."""

    @functools.wraps(method)
    def blocked(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = method(self._awake(), *args, **kwargs)
        return self._loop.run(work)

    return blocked


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return an async generator method as a blocking one of a `BlockingFacade`, with its signature and docstring."""

    @functools.wraps(method)
    def blocked(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(self._awake(), *args, **kwargs)
        with suppress(StopAsyncIteration):
            while True:
                yield self._loop.run(_next(found))

    return blocked


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)
