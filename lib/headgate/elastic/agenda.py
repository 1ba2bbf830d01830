"""When each worker needs to be looked at next, without asking them all."""

from __future__ import annotations

import heapq
import math


class Agenda:
    """At most one time per name; the newest counts. Owned by one pool."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, name: str, at: float) -> None:
        """Have a name come up at a time, and at no other."""
        if math.isinf(at):
            self._times.pop(name, None)
        elif self._times.get(name) != at:
            self._times[name] = at
            heapq.heappush(self._heap, (at, name))

    def next_at(self) -> float:
        """Return the next time at which a name comes up; infinity when none does."""
        heap = self._heap
        while heap and self._times.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def take_due(self, now: float) -> list[str]:
        """Return the names that come up by now; they come up no more until they are set again."""
        due = []
        while self.next_at() <= now:
            _, name = heapq.heappop(self._heap)
            del self._times[name]
            due.append(name)
        return due
