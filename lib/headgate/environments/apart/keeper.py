"""The one thread that starts, watches and ends the processes of environments."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from headgate.environments.apart.limits import ApartLimits, Source
from headgate.environments.apart.process import Child

_log = logging.getLogger("headgate.environments")

_BUSY_TICK_S: Final = 0.1
"""Between two looks while something is asked: a program that allocates without end takes half a GiB meanwhile."""

_IDLE_TICK_S: Final = 1.0

_GRACE_S: Final = 5.0
"""For a process that was told to end; then it is killed."""


class Keeper:
    """Watches children from a thread of its own, which never ends: the kernel ends a child with what began it.

    Lives as long as this process. A fork of it has no such thread and gets a new keeper.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects that there is one thread
        self._is_running = False
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._children: set[Child] = set()  # of the keeper's thread alone
        self._ending: dict[Child, float] = {}

    def start(self, source: Source, limits: ApartLimits) -> Child:
        """Return a new child process.

        Raises:
            OSError: if the machine has no room for one.
        """
        started: Future[Child] = Future()

        def begin() -> None:
            try:
                child = Child(source, limits)
            except Exception as error:  # noqa: BLE001 - raised to whoever waits; this thread goes on
                started.set_exception(error)
                return
            self._children.add(child)
            started.set_result(child)

        self._ask(begin)
        return started.result()

    def end(self, child: Child) -> None:
        """Let a child close its episodes and end; it is killed when that takes long."""
        until = time.monotonic() + _GRACE_S
        child.end()
        self._ask(lambda: self._ending.update({child: until} if child in self._children else {}))

    def _ask(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="headgate-apart-keeper", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                self._tasks.get(timeout=self._tick_s())()
            except queue.Empty:
                self._look(time.monotonic())

    def _tick_s(self) -> float | None:
        if not self._children:
            return None
        return _BUSY_TICK_S if any(child.is_busy for child in self._children) else _IDLE_TICK_S

    def _look(self, now: float) -> None:
        for child in tuple(self._children):
            if child.wait(0):
                self._children.discard(child)
                self._ending.pop(child, None)
                continue
            try:
                child.examine(now)
            except Exception:  # noqa: BLE001 - one that cannot be looked at is told of; the others are looked at
                _log.exception("the process %d of %s could not be looked at", child.process_id, child.source.label)
            if now > self._ending.get(child, now):
                child.kill()


class _Current:
    """The keeper of this process; another one after a fork."""

    def __init__(self) -> None:
        self.keeper = Keeper()

    def renew(self) -> None:
        self.keeper = Keeper()


_CURRENT: Final = _Current()
os.register_at_fork(after_in_child=_CURRENT.renew)


def keeper() -> Keeper:
    """Return the keeper of this process."""
    return _CURRENT.keeper
