"""Due times by key. Postponing one costs a dictionary write, so that heartbeats are nearly free."""

from __future__ import annotations

import heapq
import math
from typing import Final

_FEW: Final = 64
"""This many stale entries are not worth removing."""


class TimerHeap:
    """Keys with their due times. Setting a key again replaces its time. O(log n).

    The heap may contain stale entries: a postponed key is moved to its new time when its old entry comes up. Invariant:
    every key has an entry in the heap that is not later than its time.
    """

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return how many keys are set."""
        return len(self._at)

    def set(self, key: str, at: float | None) -> None:
        """Set the time at which `key` is due, replacing any earlier one; None removes the key, set or not."""
        if at is not None:
            before = self._at.get(key)
            self._at[key] = at
            if before is None or at < before:
                heapq.heappush(self._heap, (at, key))
            return
        self._at.pop(key, None)
        if len(self._heap) > 2 * len(self._at) + _FEW:  # an ended lease's entry would stay for its full length
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def keys(self) -> list[str]:
        """Return the keys that are set."""
        return list(self._at)

    def next_at(self) -> float | None:
        """Return the earliest time, None when no key is set."""
        while self._heap:
            told, key = self._heap[0]
            at = self._at.get(key)
            if at == told:
                return at
            if at is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (at, key))
        return None

    def pop_due(self, now: float, at_most: int | None = None) -> list[str]:
        """Remove and return the keys that are due, in order of their times."""
        due: list[str] = []
        while len(due) != at_most and (at := self.next_at()) is not None and at <= now:
            due.append(heapq.heappop(self._heap)[1])
            del self._at[due[-1]]
        return due

    def pop_passed(self, now: float) -> list[str]:
        """Remove and return the keys whose time is strictly before `now`."""
        return self.pop_due(math.nextafter(now, -math.inf))

    def validate(self) -> None:
        """Assert the invariant."""
        first = {key: at for at, key in sorted(self._heap, reverse=True)}
        for key, at in self._at.items():
            assert first[key] <= at, key
