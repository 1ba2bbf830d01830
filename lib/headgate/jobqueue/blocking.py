"""Facades that block: the methods of an asyncio class for programs that know no asyncio."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

_STOP_S: Final = 30.0


class Client(Protocol):
    """An asyncio class that can have a facade; a copy of it has the same options and no connection."""

    async def close(self) -> None:
        """Close its connections; legal twice."""

    def __copy__(self) -> Self: ...


P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=Client)


class LoopThread:
    """An event loop in a daemon thread, from the first work to `stop`. Threads may share it.

    It ends, too, when nobody has it any more. After a fork it is in the parent only. Work is cancelled as asyncio
    does it, once, so that it can still await what its end needs; a portal of anyio cancels every such await, too.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = os.getpid()
        self._changing = threading.Lock()  # whether there is a thread
        self._thread: threading.Thread | None = None
        self._runner = asyncio.Runner()
        self._end: Callable[[], object] = lambda: None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns on the loop; whoever is interrupted meanwhile cancels it."""
        outcome: Future[T] = Future()  # made before the work begins, so that an interrupt at any moment can cancel it
        try:
            self.start(_settle(outcome, work))
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop."""
        with self._changing:
            if self._thread is None:
                self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = self._runner.get_loop()
                self._thread = threading.Thread(target=_serve, args=(self._runner,), name=self.name, daemon=True)
                self._thread.start()
                self._end = weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
            return asyncio.run_coroutine_threadsafe(work, self._runner.get_loop())

    def stop(self) -> None:
        """Cancel what still runs and end the thread; legal twice. Work that comes later begins another."""
        with self._changing:
            thread, self._thread = self._thread, None
            self._end()
        if thread is not None:
            thread.join(_STOP_S)


async def _settle(outcome: Future[T], work: Coroutine[Any, Any, T]) -> None:
    """Do the work of a future that another thread may cancel, even before the work begins."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    outcome.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
        with suppress(InvalidStateError):  # cancelled just now: nobody waits for it
            outcome.set_exception(error)
    else:
        with suppress(InvalidStateError):
            outcome.set_result(result)


def _serve(runner: asyncio.Runner) -> None:
    with runner:
        runner.get_loop().run_forever()


class BlockingFacade(Generic[A]):
    """An object whose methods `blocking` makes of those of an asyncio object on a loop."""

    def __init__(self, wrapped: A, loop: LoopThread) -> None:
        self._asynchronous = wrapped
        self._loop = loop

    def _awake(self) -> A:
        """Return the asyncio object, ready for work on the loop."""
        return self._asynchronous


class BlockingClient(BlockingFacade[C]):
    """The facade of a client, with a loop of its own; a context manager.

    Its thread begins with the first call and ends with `close`; without it, when nobody has the object any more. A
    process that is forked goes on with connections of its own.
    """

    def __init__(self, wrapped: C, name: str) -> None:
        super().__init__(wrapped, LoopThread(name))

    def _awake(self) -> C:
        if self._loop.pid != os.getpid():
            self._asynchronous, self._loop = copy(self._asynchronous), LoopThread(self._loop.name)
        return self._asynchronous

    def close(self) -> None:
        """Close its connections; legal twice."""
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
    """Return a coroutine method as one of a `BlockingFacade`, with its signature and docstring."""

    @functools.wraps(method)
    def blocked(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = method(self._awake(), *args, **kwargs)
        return self._loop.run(work)

    return blocked


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return a method that yields between awaits as one of a `BlockingFacade`, with its signature and docstring."""

    @functools.wraps(method)
    def blocked(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(self._awake(), *args, **kwargs)
        with suppress(StopAsyncIteration):
            while True:
                yield self._loop.run(_next(found))

    return blocked


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)
