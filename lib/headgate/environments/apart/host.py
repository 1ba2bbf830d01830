"""The processes of one package: which one gets the next episode, and when a new one may be started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.apart.calls import Call
from headgate.environments.apart.keeper import keeper
from headgate.environments.apart.limits import ApartLimits, Source
from headgate.environments.apart.process import Child

FIRST_PAUSE_S: Final = 1.0
"""Before the third process in a row is started; the second one starts at once, since one death may be an accident."""

LONGEST_PAUSE_S: Final = 60.0

_RETIRING_TIMES: Final = 2
"""Times `processes` that there may be while some wait for their episodes to end."""


class Host:
    """Chooses among the children of one `Source`. Thread-safe; lives as long as this process.

    Invariant: at most `processes` children get new episodes, and at most twice as many exist.
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
        self._start = start or (lambda source, limits: keeper().start(source, limits))
        self._monotonic = monotonic
        self._lock = threading.RLock()  # protects everything below, and the children's `load`
        self._children: list[Child] = []
        self._deaths = 0
        self._not_before = 0.0
        self._last_death = ""

    def seat(self) -> Child:
        """Return a child with room for one more episode, which is counted; `leave` gives the seat back.

        Raises:
            EnvironmentFailedError: if processes of this package keep dying, or too many hold too much memory.
        """
        with self._lock:
            child = self._chosen(wants_own=True)
            child.load += 1
            return child

    def ask(self, do: str, environment: str, **arguments: Any) -> Call:
        """Ask a child something that belongs to no episode.

        Raises:
            EnvironmentFailedError: as `seat` does.
        """
        with self._lock:  # a child that is asked is not idle: nobody ends it between the choice and the question
            return self._chosen(wants_own=False).call(do, environment, **arguments)

    def leave(self, child: Child, *, is_well: bool) -> None:
        """Give a seat back. An episode played to its end shows that the package works: deaths are forgotten."""
        with self._lock:
            child.load -= 1
            self._bury()
            if is_well and not child.is_gone:
                self._deaths, self._not_before = 0, 0.0
            self._retire()

    def end_idle(self) -> tuple[Child, ...]:
        """End the children in which no episode is open, and return them."""
        with self._lock:
            idle = tuple(child for child in self._children if child.load == 0 and not child.is_busy)
            for child in idle:
                self._end(child)
            return idle

    def children(self) -> tuple[Child, ...]:
        """Return the children that live."""
        with self._lock:
            self._bury()
            return tuple(self._children)

    def abandon(self) -> None:
        """Forget the children: they are another process's, of which this one is a fork."""
        self._lock, children = threading.RLock(), self._children
        self._children, self._deaths, self._not_before = [], 0, 0.0
        for child in children:
            child.abandon()

    def _chosen(self, *, wants_own: bool) -> Child:
        self._bury()
        self._retire()
        open_ones = sorted(
            (child for child in self._children if not child.is_retiring), key=lambda c: (c.is_stalled(), c.load)
        )
        if open_ones and (not wants_own or len(open_ones) >= self.limits.processes or _is_free(open_ones[0])):
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
        if len(self._children) >= _RETIRING_TIMES * self.limits.processes:
            raise EnvironmentFailedError(
                f"{len(self._children)} processes of {self.source.label} hold more memory than "
                f"environment_memory_mib={self.limits.memory_mib} and still play; no more are started",
                next_step="Raise environment_memory_mib, or lower the number of episodes at once.",
            )
        try:
            child = self._start(self.source, self.limits)
        except OSError as error:
            raise EnvironmentFailedError(f"no process for {self.source.label} can be started: {error}") from error
        self._children.append(child)
        return child

    def _bury(self) -> None:
        """Forget children that are gone, and wait before the next start when that was no single accident."""
        for child in [child for child in self._children if child.is_gone]:
            self._children.remove(child)
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
        keeper().end(child)


def _is_free(child: Child) -> bool:
    return child.load == 0 and not child.is_stalled()
