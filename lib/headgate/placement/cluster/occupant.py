"""One piece of work inside a host: created, run in a thread of its own, called, and stopped if it cooperates."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from headgate.placement.amounts import MEBIBYTE
from headgate.placement.errors import InvalidPlacementError, PlacementLostError, WorkFailedError
from headgate.placement.service.protocol import Outcome, WorkOrder

LARGEST_BYTES: Final = 16 * MEBIBYTE
"""Largest result or saved state, as both are journalled. Larger data belongs in a file or a store."""


@dataclass(frozen=True, slots=True)
class Halted:
    """How work answered a request to stop: its pickled state, whether its code has ended, and what went wrong."""

    state: bytes | None = None
    has_ended: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """What work can learn about its current start; see `placement_context`."""

    request_id: str
    rank: int
    world_size: int
    attempt: int
    has_state: bool


_here: PlacementContext | None = None


def placement_context() -> PlacementContext:
    """Return which request this process works for, and as which member.

    Raises:
        InvalidPlacementError: called outside work that was placed.
    """
    if _here is None:
        raise InvalidPlacementError("placement_context() is for code that runs as placed work")
    return _here


def in_thread(call: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """Run a call in a new thread and return its future: user code may block the thread for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(put: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            put(value)

    def run() -> None:
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            # StopIteration cannot be raised into a future.
            is_raisable = isinstance(error, Exception) and not isinstance(error, StopIteration)
            told = error if is_raisable else RuntimeError(repr(error))
            loop.call_soon_threadsafe(settle, future.set_exception, told)
        else:
            loop.call_soon_threadsafe(settle, future.set_result, value)

    threading.Thread(target=run, name=f"headgate-{name}", daemon=True).start()
    return future


class Occupant:
    """One member of an order's work. Owned by its host; created in the host's event loop, its code runs in threads.

    A class with `async` methods gets its own event loop, on which all of them run.
    """

    def __init__(self, order: WorkOrder, rank: int) -> None:
        self.order = order
        self._rank = rank
        self.calls = 0  # calls of the user's methods in progress, besides the work itself
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._object: Any = None
        self._ready = threading.Event()
        self._leave = threading.Event()
        self._stopping = False
        self._saving_over = asyncio.Event()
        self._saving_over.set()
        self._serves = False  # it has no method to run, and serves calls until it is stopped
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Begin in a thread and return at once: creating the object may take minutes, and is part of the work."""
        global _here  # noqa: PLW0603 - one process works for one request at a time
        order = self.order
        has_state = order.state is not None
        _here = PlacementContext(order.request_id, self._rank, len(order.bundles), order.epoch, has_state)
        in_thread(self._live, f"work-{self.order.epoch}").add_done_callback(self._settle)

    async def ended(self) -> Outcome:
        """Wait until it has ended by itself, and return how."""
        ended = await asyncio.shield(self._ended)
        await self._saving_over.wait()  # otherwise the object would be dropped before a stop has saved its state
        return ended

    @property
    def has_ended(self) -> bool:
        """Whether none of its code runs any more, as far as this process can know."""
        return self._ended.done() and self.calls == 0

    async def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the object, once it exists, in a new thread."""
        self.calls += 1
        try:
            return await in_thread(lambda: self._called(method, args, kwargs), "call")
        finally:
            self.calls -= 1

    async def stop(self, timeout_s: float) -> Halted:
        """Ask it to stop: call `cancel(request_id)`, then `checkpoint()` if that has saved nothing."""
        until = time.monotonic() + timeout_s
        if self.has_ended:
            return Halted(has_ended=True)
        self._stopping = True
        self._saving_over.clear()
        try:
            if not self._ready.is_set():  # it is still being created
                await asyncio.wait_for(in_thread(self._ready.wait, "made"), timeout_s)
            can_cancel = hasattr(self._object, "cancel")
            rest = max(0.0, until - time.monotonic())
            state = (
                await asyncio.wait_for(
                    in_thread(lambda: self._here(cancelled(self._object, self.order.request_id)), "cancel"), rest
                )
                if can_cancel
                else None
            )
            self._leave.set()
            if self._loop is not None and self._task is not None:
                with suppress(RuntimeError):  # the loop has closed meanwhile
                    self._loop.call_soon_threadsafe(self._task.cancel)
            if can_cancel or self._loop is not None or self._serves:
                await self._left(until)
            if state is None and hasattr(self._object, "checkpoint"):
                rest = max(0.0, until - time.monotonic())
                state = await asyncio.wait_for(in_thread(lambda: self._here(self._object.checkpoint()), "save"), rest)
            saved = None if state is None else packed(state, "saved state")
        except TimeoutError:
            return Halted(None, self.has_ended, f"It was still saving after {timeout_s:g} s")
        except BaseException as error:  # noqa: BLE001 - user code: reported, and the work is killed
            return Halted(None, self.has_ended, f"It could not stop: {type(error).__name__}: {error}")
        finally:
            self._saving_over.set()
        return Halted(saved, self.has_ended, "" if self.has_ended else "It went on after it was asked to stop")

    def forget(self) -> None:
        """Drop the object, which may hold much memory."""
        self._object = None

    async def _left(self, until: float) -> None:
        """Wait until its code has ended, at most until the deadline."""
        await asyncio.wait([self._ended], timeout=max(0.0, until - time.monotonic()))
        while self.calls and time.monotonic() < until:  # noqa: ASYNC110 - rare, and soon over
            await asyncio.sleep(0.001)

    def _settle(self, lived: asyncio.Future[Any]) -> None:
        error = lived.exception()
        ended = Outcome("raised", why=repr(error)) if error is not None else lived.result()
        self._ended.set_result(Outcome("died", why="It was asked to stop") if self._stopping else ended)

    def _live(self) -> Outcome:
        try:
            work, args, kwargs, method, _ = cloudpickle.loads(self.order.payload)
            self._serves = not method
            if has_async(work):
                result = self._live_async(work, args, kwargs, method)
            else:
                self._make(work, args, kwargs)
                self._ready.set()
                result = getattr(self._object, method)() if method else self._leave.wait() and None
            return Outcome("returned", packed(result, "result"))
        except BaseException as error:  # noqa: BLE001 - user code, even SystemExit: reported with its traceback
            return raised(error)
        finally:
            self._ready.set()

    def _live_async(self, work: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], method: str) -> Any:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()

            async def main() -> Any:
                self._make(work, args, kwargs)
                self._task = asyncio.ensure_future(
                    awaited(getattr(self._object, method)()) if method else asyncio.to_thread(self._leave.wait)
                )
                self._ready.set()  # not earlier: from now on a stop finds a task to cancel
                result = await self._task
                return result if method else None

            return runner.run(main())

    def _make(self, work: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        made = work(*args, **kwargs)
        if self.order.state is not None and hasattr(made, "restore"):
            made.restore(pickle.loads(self.order.state))  # noqa: S301 - saved by the same work, kept by the ledger
        self._object = made

    def _called(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._ready.wait()
        if self._object is None or self._stopping:
            raise PlacementLostError(f"Work {self.order.request_id} is not there any more to answer {method}()")
        return self._here(getattr(self._object, method)(*args, **kwargs))

    def _here(self, value: Any) -> Any:
        """Return a value; an awaitable is first awaited on the work's own loop."""
        if not inspect.isawaitable(value):
            return value
        if self._loop is None or self._loop.is_closed():
            return asyncio.run(awaited(value))
        return asyncio.run_coroutine_threadsafe(awaited(value), self._loop).result()


def cancelled(work: Any, request_id: str) -> Any:
    """Call the work's `cancel`, passing the request's id if it takes an argument, and return what it returns."""
    return work.cancel(request_id) if inspect.signature(work.cancel).parameters else work.cancel()


async def awaited(value: Any) -> Any:
    """Return a value; an awaitable is awaited first."""
    return await value if inspect.isawaitable(value) else value


def has_async(work: type) -> bool:
    """Tell whether a class has an `async` method."""
    return any(inspect.iscoroutinefunction(inspect.getattr_static(work, name, None)) for name in dir(work))


def packed(value: Any, what: str) -> bytes:
    """Return a result or a saved state, pickled; raises WorkFailedError if that fails or is too large."""
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise WorkFailedError(
            f"The {what} ({type(value).__name__}) cannot be pickled: {error}",
            next_step="Return plain data, or write it to a file and return the file's name.",
        ) from error
    if len(data) > LARGEST_BYTES:
        raise WorkFailedError(
            f"The {what} takes {len(data):,} bytes, and at most {LARGEST_BYTES // MEBIBYTE} MiB are kept "
            f"({LARGEST_BYTES:,})",
            next_step="Write it to a file or a store and return the name.",
        )
    return data


def raised(error: BaseException) -> Outcome:
    """Return the outcome of work that raised: its traceback, and the exception itself if it can be pickled."""
    try:
        payload: bytes = cloudpickle.dumps(error)
        pickle.loads(payload)  # noqa: S301 - some exceptions can be pickled but not unpickled
    except Exception:  # noqa: BLE001 - the traceback, which is always reported, says the same
        payload = b""
    return Outcome("raised", payload if len(payload) <= LARGEST_BYTES else b"", _traced(error))


def _traced(error: BaseException) -> str:
    """Return an error with its traceback, starting in the work's code; an error of `packed` needs no traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if trace is None and isinstance(error, WorkFailedError):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, trace))
