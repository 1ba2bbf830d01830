"""The processes of one package: which one gets the next episode, when a new one starts, and how all end."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.apart.frames import ApartLimits, Call, Source
from headgate.environments.apart.process import Child
from headgate.environments.shares import MODEL

_log = logging.getLogger("headgate.environments")

_BUSY_TICK_S: Final = 0.1
"""Interval of checks while calls are pending: a runaway program allocates about half a GiB in between."""

_IDLE_TICK_S: Final = 1.0

_GRACE_S: Final = 5.0
"""Time for a process to end when asked to; then it is killed."""


class Keeper:
    """Starts and watches children from its own thread, which never ends: a child ends with the thread that started it.

    Lives as long as this process. A fork has no such thread and starts its own.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start without children: after a fork, they belong to the parent process."""
        self._lock = threading.Lock()  # ensures that there is only one thread
        self._is_running = False
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._children: set[Child] = set()  # of the keeper's thread alone
        self._ending: dict[Child, float] = {}

    def start(self, source: Source, limits: ApartLimits) -> Child:
        """Return a new child process.

        Raises:
            OSError: if the machine cannot start one.
        """
        started: Future[Child] = Future()

        def begin() -> None:
            try:
                child = Child(source, limits)
            except Exception as error:  # noqa: BLE001 - raised in the caller; this thread goes on
                started.set_exception(error)
                return
            self._children.add(child)
            started.set_result(child)

        self._ask(begin)
        return started.result()

    def end(self, child: Child) -> None:
        """Ask a child to close its episodes and end; it is killed if that takes longer than `_GRACE_S`."""
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
            except Exception:  # noqa: BLE001 - one that cannot be checked is logged; the others are checked
                _log.exception("process %d of %s cannot be checked", child.process_id, child.source.label)
            if now > self._ending.get(child, now):
                child.kill()


KEEPER: Final = Keeper()
"""The keeper of this process; reset after a fork."""

os.register_at_fork(after_in_child=KEEPER.begin_anew)


FIRST_PAUSE_S: Final = 1.0
"""Pause before the third consecutive start; the second start is immediate, since one death may be an accident."""

LONGEST_PAUSE_S: Final = 60.0

_RETIRING_TIMES: Final = 2
"""Maximum number of processes, in multiples of `processes`, including retiring ones and those of blocking models."""

APART_S: Final = 600.0
"""Time for which a model whose answer blocked a process plays in separate processes."""


class Host:
    """Chooses among the children of one `Source`. Thread-safe; lives as long as this process.

    Invariant: at most `processes` children get new episodes, and as many again get those of models that blocked one;
    at most twice `processes` exist.
    """

    def __init__(
        self,
        source: Source,
        limits: ApartLimits,
        *,
        start: Callable[[Source, ApartLimits], Child] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source: Final = source
        self.limits: Final = limits
        self._start = start or KEEPER.start
        self._monotonic = monotonic
        self._lock = threading.RLock()  # protects everything below, and the children's `load`
        self._children: list[Child] = []
        self._deaths = 0
        self._not_before = 0.0
        self._last_death = ""
        self._blocked: dict[str, float] = {}

    def seat(self) -> Child:
        """Return a child for one more episode of the current model, and count it; `leave` gives the seat back.

        Raises:
            EnvironmentFailedError: if processes of this package keep dying, or too many hold too much memory.
        """
        with self._lock:
            child = self._chosen(wants_own=True, blocks=self._has_blocked(MODEL.get()))
            child.load += 1
            return child

    def ask(self, do: str, environment: str, **arguments: Any) -> Call:
        """Send a call that belongs to no episode.

        Raises:
            EnvironmentFailedError: as `seat` does.
        """
        with self._lock:  # a child with a pending call is not idle, so it cannot be ended between choice and call
            return self._chosen(wants_own=False, blocks=False).call(do, environment, **arguments)

    def is_misplaced(self, child: Child) -> bool:
        """Return whether an episode of the current model must leave `child`, because other models block it."""
        if not child.blocked_by:
            return False
        with self._lock:
            return not self._has_blocked(MODEL.get())

    def leave(self, child: Child, *, is_well: bool) -> None:
        """Give a seat back. A completed episode (`is_well`) proves that the package works, and resets the deaths."""
        with self._lock:
            child.load -= 1
            self._bury()
            if is_well and not child.is_gone:
                self._deaths, self._not_before = 0, 0.0
            self._retire()

    def end_idle(self) -> tuple[Child, ...]:
        """End the children without open episodes, and return them."""
        with self._lock:
            idle = tuple(child for child in self._children if child.load == 0 and not child.is_busy)
            for child in idle:
                self._end(child)
            return idle

    def children(self) -> tuple[Child, ...]:
        """Return the living children."""
        with self._lock:
            self._bury()
            return tuple(self._children)

    def abandon(self) -> None:
        """Forget the children after a fork: they belong to the parent process."""
        self._lock, children = threading.RLock(), self._children
        self._children, self._deaths, self._not_before = [], 0, 0.0
        for child in children:
            child.abandon()

    def _has_blocked(self, model: str) -> bool:
        """Return whether an answer of `model` blocked a process in the last `APART_S`."""
        self._bury()
        return self._blocked.get(model, 0.0) > self._monotonic()

    def _chosen(self, *, wants_own: bool, blocks: bool) -> Child:
        self._bury()
        self._retire()
        open_ones = sorted(
            (child for child in self._children if not child.is_retiring and bool(child.blocked_by) == blocks),
            key=lambda c: (c.is_stalled(), c.load),
        )
        if open_ones and (
            not wants_own
            or len(open_ones) >= self.limits.processes
            or (open_ones[0].load == 0 and not open_ones[0].is_stalled())
        ):
            return open_ones[0]
        if open_ones and self._monotonic() < self._not_before:
            return open_ones[0]
        return self._started()

    def _started(self) -> Child:
        wait_s = self._not_before - self._monotonic()
        if wait_s > 0:
            raise EnvironmentFailedError(
                f"the processes of {self.source.label} ended {self._deaths} times in a row, and none is started for "
                f"another {wait_s:.0f} s; the last one: {self._last_death}"
            )
        blocked = [child for child in self._children if child.blocked_by and child.is_stalled()]
        if len(self._children) >= _RETIRING_TIMES * self.limits.processes and blocked:
            self._children.remove(blocked[0])
            blocked[0].kill("a model's answer blocked it, and others needed its place")
        if len(self._children) >= _RETIRING_TIMES * self.limits.processes:
            raise EnvironmentFailedError(
                f"{len(self._children)} processes of {self.source.label} hold more memory than "
                f"environment_memory_mib={self.limits.memory_mib} and still have episodes; no more are started",
                next_step="Raise environment_memory_mib, or lower the number of episodes at once.",
            )
        try:
            child = self._start(self.source, self.limits)
        except OSError as error:
            raise EnvironmentFailedError(f"no process for {self.source.label} can be started: {error}") from error
        self._children.append(child)
        return child

    def _bury(self) -> None:
        """Forget children that are gone, and delay the next start if more than one died in a row."""
        until = self._monotonic() + APART_S
        for child in self._children:
            self._blocked.update((model, until) for model in tuple(child.blocked_by))
        for child in [child for child in self._children if child.is_gone]:
            self._children.remove(child)
            if child.blocked_by:  # caused by a model, not by the package
                continue
            self._deaths += 1
            self._last_death = child.why_gone
            if self._deaths > 1:
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._deaths - 2, 16))
                self._not_before = self._monotonic() + pause_s

    def _retire(self) -> None:
        for child in [child for child in self._children if child.is_retiring and child.load == 0 and not child.is_busy]:
            self._end(child)

    def _end(self, child: Child) -> None:
        self._children.remove(child)
        KEEPER.end(child)


_END_S: Final = 5.0
"""Time for processes to end by themselves at the end of a campaign."""

_EXIT_S: Final = 1.0
"""Likewise when this process exits; shorter, since a user waits for the prompt."""


class Hosts:
    """The hosts of this process, one for each source and limits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the map
        self._hosts: dict[tuple[Source, ApartLimits], Host] = {}

    def of(self, source: Source, limits: ApartLimits) -> Host:
        """Return the host of `source` under `limits`, the same for every caller; starts no process."""
        with self._lock:
            if (source, limits) not in self._hosts:
                self._hosts[source, limits] = Host(source, limits)
            return self._hosts[source, limits]

    def end_idle(self, within_s: float = _END_S) -> None:
        """End the processes without open episodes, wait for them, then kill those that are left."""
        with self._lock:
            hosts = tuple(self._hosts.values())
        _see_off(tuple(child for host in hosts for child in host.end_idle()), within_s)

    def end_all(self, within_s: float = _EXIT_S) -> None:
        """End every process, with or without episodes, because this process exits."""
        with self._lock:
            hosts = tuple(self._hosts.values())
        children = tuple(child for host in hosts for child in host.children())
        for child in children:
            child.end()
        _see_off(children, within_s)

    def abandon(self) -> None:
        """Forget all processes after a fork: they belong to the parent process."""
        self._lock = threading.Lock()
        for host in self._hosts.values():
            host.abandon()


def _see_off(children: tuple[Child, ...], within_s: float) -> None:
    until = time.monotonic() + within_s
    for child in children:
        if not child.wait(max(0.0, until - time.monotonic())):
            child.kill()
    for child in children:
        child.wait(1.0)


HOSTS: Final = Hosts()
"""The hosts of this process."""

end_idle_processes = HOSTS.end_idle

atexit.register(HOSTS.end_all)
os.register_at_fork(after_in_child=HOSTS.abandon)
