"""The host: a process that stays in its bundle and runs one piece of work after another, without a process start."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray

from headgate.placement.cluster.occupant import Halted, Occupant
from headgate.placement.errors import PlacementLostError
from headgate.placement.service.protocol import Outcome, WorkOrder

_OURS: Final = ("headgate-", "asyncio_", "ray_")

GRACE_S: Final = 0.25
"""How long the threads of ended work may take to end; beyond that a new process, which takes a second, is cheaper."""


class Leftovers:
    """A snapshot of the process to compare it with later. Owned by a host; taken before each piece of work."""

    def __init__(self) -> None:
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._environ = dict(os.environ)
        self._folder = os.getcwd()  # noqa: PTH109 - a string goes back into chdir as it is

    def found(self) -> str:
        """Return what is left over, in words; empty if the process can be reused."""
        threads = [thread.name for thread in threading.enumerate() if self._is_new(thread)]
        if threads:
            return f"threads: {', '.join(threads[:3])}"
        if children := list(_children(os.getpid())):
            return f"child processes: {', '.join(map(str, children[:3]))}"
        return "an open GPU" if _has_gpu_open() else ""

    def cleared(self) -> None:
        """Restore environment and working folder, and free the work's objects that are held by reference cycles."""
        os.environ.clear()
        os.environ.update(self._environ)
        with suppress(OSError):
            os.chdir(self._folder)
        gc.collect()

    def _is_new(self, thread: threading.Thread) -> bool:
        is_ours = thread.name.startswith(_OURS) or isinstance(thread, threading._DummyThread)  # noqa: SLF001
        return thread.is_alive() and not is_ours and thread.ident not in self._threads


def end_descendants(process_id: int) -> None:
    """Kill every descendant of a process, the deepest first."""
    for child in list(_children(process_id)):
        end_descendants(child)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def _children(process_id: int) -> Iterator[int]:
    """Return the children of a process; none on systems without /proc."""
    for told in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, told.read_text().split())


def _has_gpu_open() -> bool:
    """Tell whether CUDA is initialised: its context holds memory until the process ends, and keeps devices open."""
    for opened in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            if str(opened.readlink()).startswith("/dev/nvidia"):
                return True
    return False


@dataclass(frozen=True, slots=True)
class Left:
    """How work left its host: `remains` says what it left behind, and is empty if the host can be reused."""

    outcome: Outcome
    remains: str


class Host:
    """An async Ray actor, one per bundle. Its control methods always answer: user code runs in other threads.

    It runs one order at a time; calls with another epoch are refused.
    """

    def __init__(self) -> None:
        self._occupant: Occupant | None = None
        self._before = Leftovers()
        self._left: Left | None = None
        self._leaving = asyncio.Lock()  # what was left behind is looked for only once
        # By default a thread in a Python loop yields only after 5 ms, and a stop takes several switches.
        sys.setswitchinterval(0.001)
        # Blocking `ray.get` is fine in work's own thread; Ray cannot tell it from one in the event loop.
        os.environ["RAY_WARN_BLOCKING_GET_INSIDE_ASYNC"] = "0"
        # Everything loaded by now stays, so that the collection after each piece of work covers only its own objects.
        gc.freeze()

    async def watch(self) -> None:
        """Never return: the call fails when the process dies, which is how its death is noticed."""
        await asyncio.Event().wait()

    async def process_id(self) -> int:
        """Return the process id; an answer means that the host is up."""
        return os.getpid()

    async def begin(self, order: WorkOrder, rank: int) -> bool:
        """Start one member of an order; False if another one is still here."""
        if self._occupant is not None and self._left is None:
            return False
        self._before, self._left = Leftovers(), None
        self._occupant = Occupant(order, rank)
        self._occupant.start()
        return True

    async def occupant(self) -> tuple[str, str, int] | None:
        """Return request, lease and epoch of the last order, even if it has ended."""
        if self._occupant is None:
            return None
        order = self._occupant.order
        return order.request_id, order.lease_id, order.epoch

    async def outcome(self, epoch: int) -> Left:
        """Wait until the work has ended by itself, and return how; can be called again until the next work begins."""
        occupant = self._of(epoch)
        outcome = await occupant.ended()
        async with self._leaving:
            if self._left is None or self._occupant is not occupant:
                self._left = Left(outcome, await self._remains(occupant))
            return self._left

    async def call(self, epoch: int, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the work."""
        return await self._of(epoch).call(method, args, kwargs)

    async def stop(self, epoch: int, timeout_s: float) -> Halted:
        """Ask the work to stop within `timeout_s`; `outcome` reports what it left behind.

        Work that does not end is killed by the caller; its child processes are killed here, where alone they are known.
        """
        halted = await self._of(epoch).stop(timeout_s)
        if not halted.has_ended:
            end_descendants(os.getpid())
        return halted

    def _of(self, epoch: int) -> Occupant:
        occupant = self._occupant
        if occupant is None or occupant.order.epoch != epoch:
            raise PlacementLostError(f"No work of epoch {epoch} is in this host")
        return occupant

    async def _remains(self, occupant: Occupant) -> str:
        until = time.monotonic() + GRACE_S
        # The end of a thread or of a child process sends no notification.
        while (remains := self._found(occupant)) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if remains:
            end_descendants(os.getpid())
        else:
            occupant.forget()
            self._before.cleared()
        return remains

    def _found(self, occupant: Occupant) -> str:
        return "calls under way" if occupant.calls else self._before.found()


HostActor: Final = ray.remote(Host)
"""The class as Ray makes actors of it."""
