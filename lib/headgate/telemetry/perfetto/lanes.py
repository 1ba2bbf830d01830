"""Tracks for what runs beside each other: the lowest free number, given back at the end."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lanes:
    """Numbers from 0 on; each is held by one at a time. Pure."""

    _free: list[int] = field(default_factory=list)
    _next: int = 0

    def take(self) -> int:
        """Return the lowest number that nobody holds."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, lane: int) -> None:
        """Let a number be taken again."""
        heapq.heappush(self._free, lane)
