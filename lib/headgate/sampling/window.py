"""Sliding counts: how many samples fell into the last day, hour or minute, in constant memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from headgate.core import DAY_S


class SlidingCount:
    """Counts over a sliding span, in a ring of equal buckets. Pure: `now` is passed in.

    The oldest bucket is dropped as a whole, so a count is exact to one bucket's width. `add` and `total` cost O(1)
    amortised. Invariant: `total` equals the sum of the ring.
    """

    __slots__ = ("_bucket_s", "_buckets", "_newest", "_sum")

    def __init__(self, *, span_s: float = DAY_S, bucket_s: float = 60.0) -> None:
        self._bucket_s = bucket_s
        self._buckets = array("Q", bytes(8 * round(span_s / bucket_s)))
        self._newest = -1
        self._sum = 0

    def add(self, now: float, count: int = 1) -> None:
        """Count `count` at `now`; a time older than the span is not counted."""
        slot = int(now // self._bucket_s)
        if slot > self._newest:
            self._advance(now)
        elif self._newest - slot >= len(self._buckets):
            return
        self._buckets[slot % len(self._buckets)] += count
        self._sum += count

    def total(self, now: float) -> int:
        """Return the count over the span that ends at `now`."""
        self._advance(now)
        return self._sum

    def recent(self, now: float, last_s: float) -> int:
        """Return the count over the last `last_s` seconds, exact to one bucket's width."""
        self._advance(now)
        size = len(self._buckets)
        width = round(last_s / self._bucket_s)
        if width >= size:
            return self._sum
        last = self._newest % size + 1
        return sum(self._buckets[max(0, last - width) : last]) + sum(self._buckets[size - max(0, width - last) :])

    def restore(self, counts: Iterable[tuple[float, int]], now: float) -> None:
        """Add (time, count) pairs from before this process; those after `now` are ignored."""
        self._advance(now)
        for at, count in counts:
            if at <= now:
                self.add(at, count)

    def _advance(self, now: float) -> None:
        slot = int(now // self._bucket_s)
        if slot <= self._newest:
            return
        size = len(self._buckets)
        if slot - self._newest >= size:
            if self._sum:
                self._buckets = array("Q", bytes(8 * size))
                self._sum = 0
        else:
            for gone in range(self._newest + 1, slot + 1):
                self._sum -= self._buckets[gone % size]
                self._buckets[gone % size] = 0
        self._newest = slot

    def validate(self) -> None:
        """Assert the invariant of the class."""
        assert self._sum == sum(self._buckets), (self._sum, sum(self._buckets))
