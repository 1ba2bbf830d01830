"""One heap of timers for all samplers: an idle one costs nothing, and nothing polls."""

from __future__ import annotations

import heapq


class TimerHeap:
    """Keys with the time at which each wants to be called. Setting a key again replaces its time. O(log n)."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, key: str, at: float | None) -> None:
        """Call `key` at `at`; None takes it out."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def keys(self) -> list[str]:
        """Return the keys that are set."""
        return list(self._at)

    def next_at(self) -> float | None:
        """Return the earliest time, None when no key is set."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float, at_most: int | None = None) -> list[str]:
        """Take out and return the keys whose time has come, in order of their times."""
        due: list[str] = []
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now or len(due) == at_most:
                return due
            _, key = heapq.heappop(self._heap)
            del self._at[key]
            due.append(key)

    def _drop_stale(self) -> None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
