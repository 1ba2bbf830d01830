"""Virtual time: planned events in order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Happening = Callable[[float], None]
"""Called with the virtual seconds at which it happens."""


class Agenda:
    """Planned events, earliest first; events of one moment in the order of planning. Owned by one replay."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happening]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """When the next event happens; infinity if nothing is planned."""
        return self._heap[0][0] if self._heap else math.inf

    def plan(self, at_s: float, happening: Happening) -> None:
        """Plan an event for a moment."""
        self._number += 1
        heapq.heappush(self._heap, (at_s, self._number, happening))

    def happen(self, now: float) -> None:
        """Run all events that are due, including those that they plan for this moment."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
