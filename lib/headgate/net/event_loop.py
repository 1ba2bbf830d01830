"""Event loops: the main one of a process that serves or samples, and one in a thread for programs without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, TypeVar

T = TypeVar("T")
_STOP_S: Final = 30.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns, on an event loop of its own; as `asyncio.run`, and a tenth faster with uvloop."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - not on Windows

        factory = uvloop.new_event_loop
    result: list[T] = []

    async def kept() -> None:
        # Not the task's own result: when restoring SIGINT, Python 3.11 formats the task with its result.
        result.append(await main)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(kept())
    return result[0]


class LoopThread:
    """An event loop in a daemon thread, from the first coroutine to `stop`. Threads may share it.

    It also ends when this object is garbage-collected. After a fork it runs only in the parent. Work is cancelled once,
    as in asyncio, so that its cleanup can still await; an anyio portal would cancel those awaits, too.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = os.getpid()
        self._changing = threading.Lock()  # protects `_thread` and `_runner`
        self._thread: threading.Thread | None = None
        self._runner = asyncio.Runner()
        self._end: Callable[[], object] = lambda: None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns on the loop; an interrupt of the caller cancels it."""
        outcome: Future[T] = Future()  # made before the work starts, so that an interrupt at any moment can cancel it
        try:
            self.start(_settle(outcome, work))
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        with self._changing:
            if self._thread is None:
                self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = self._runner.get_loop()
                self._thread = threading.Thread(target=_serve, args=(self._runner,), name=self.name, daemon=True)
                self._thread.start()
                self._end = weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
            return asyncio.run_coroutine_threadsafe(work, self._runner.get_loop())

    def stop(self, within_s: float = _STOP_S) -> None:
        """Cancel what still runs and end the thread; may be called twice. Later work starts a new thread.

        Work that computes without an await cannot be cancelled; after `within_s` it is left to end with the process.
        """
        with self._changing:
            thread, self._thread = self._thread, None
            self._end()
        if thread is not None:
            thread.join(within_s)


async def _settle(outcome: Future[T], work: Coroutine[Any, Any, T]) -> None:
    """Run the work of a future that another thread may cancel, even before the work starts."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    outcome.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
        with contextlib.suppress(InvalidStateError):  # cancelled just now: nothing waits for it
            outcome.set_exception(error)
    else:
        with contextlib.suppress(InvalidStateError):
            outcome.set_result(result)


def _serve(runner: asyncio.Runner) -> None:
    with runner:
        runner.get_loop().run_forever()
