"""Deadlines by key: setting a later one costs a dictionary write, so that heartbeats are nearly free."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

_FEW: Final = 64
"""So many moments that are out of date are not worth looking for."""


class Deadlines(Generic[KeyT]):
    """The moment at which each key is due.

    The heap may hold moments that are out of date: a key that has moved to a later one is put there when its old moment
    comes up. Invariant: every key has an entry in the heap that is not later than its deadline.
    """

    def __init__(self) -> None:
        self._due_at: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._count = count()  # keys need no order

    def __len__(self) -> int:
        """Return how many keys have a deadline."""
        return len(self._due_at)

    def set(self, key: KeyT, due_at: float) -> None:
        """Give a key a deadline, in place of the one that it had."""
        before = self._due_at.get(key)
        self._due_at[key] = due_at
        if before is None or due_at < before:
            heapq.heappush(self._heap, (due_at, next(self._count), key))

    def drop(self, key: KeyT) -> None:
        """Forget a key; legal for one that is not there."""
        self._due_at.pop(key, None)
        if len(self._heap) > 2 * len(self._due_at) + _FEW:
            # A long lease that ended early would stay for its length.
            self._heap = [(due_at, next(self._count), key) for key, due_at in self._due_at.items()]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """Return the earliest deadline, or None without any."""
        while self._heap:
            at, _, key = self._heap[0]
            due_at = self._due_at.get(key)
            if due_at == at:
                return at
            if due_at is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (due_at, next(self._count), key))
        return None

    def due(self, now: float) -> Iterator[KeyT]:
        """Yield and forget the keys whose deadline has passed (`now` is later), earliest first."""
        while (at := self.next()) is not None and at < now:
            key = heapq.heappop(self._heap)[2]
            del self._due_at[key]
            yield key

    def validate(self) -> None:
        """Assert the invariant."""
        first = {key: at for at, _, key in sorted(self._heap, reverse=True)}
        for key, due_at in self._due_at.items():
            assert first[key] <= due_at, key
