"""The agenda of a simulation: what happens when, in exact order."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Agenda:
    """A heap of actions and the time of the one that runs. Actions of one moment run in the order they were set."""

    __slots__ = ("_entries", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Action]] = []
        self._number = 0

    def at(self, time: float, action: Action) -> None:
        """Have `action` run at `time`, which is now at the earliest."""
        self._number += 1
        heapq.heappush(self._entries, (max(time, self.now), self._number, action))

    def run(self, until: float) -> None:
        """Run everything that is due before `until`, and stop there."""
        entries = self._entries
        while entries and entries[0][0] < until:
            self.now, _, action = heapq.heappop(entries)
            action()
        self.now = until
