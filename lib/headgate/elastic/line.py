"""The line in front of the workers: groups take turns, first come first served inside one."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from headgate.elastic.request import Handling, RequestState

_SKIPPED: Final = 1_000
"""So many that left may stand in line, or as many as wait if they are more: then the line is made anew without them."""


class Line:
    """Requests that wait. Owned by one pool.

    Who was handed over keeps its order, and so stands before all that came after it. Requests that left are skipped
    when their turn comes: whether one waits is told by its own state.

    Invariant: what is kept is in proportion to what waits, however many clients lose patience behind a slow head.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[str, list[tuple[int, Handling]]] = OrderedDict()
        self._oldest: list[tuple[float, int, int, Handling]] = []
        self._count = 0
        self._skipped = 0

    def __len__(self) -> int:
        return self._count

    def join(self, handling: Handling) -> None:
        """Have a request wait."""
        heapq.heappush(self._groups.setdefault(handling.request.group, []), (handling.order, handling))
        heapq.heappush(self._oldest, (handling.waits_since, handling.order, handling.epoch, handling))
        self._count += 1
        if len(self._oldest) > 2 * self._count + _SKIPPED:
            self._oldest = [each for each in self._oldest if _waits(each)]
            heapq.heapify(self._oldest)

    def leave(self) -> None:
        """Take note that a waiting request waits no more."""
        self._count -= 1
        self._skipped += 1
        if self._skipped > self._count + _SKIPPED:
            self._forget_skipped()

    def head(self) -> Handling | None:
        """Return who is next; None when nobody waits."""
        while self._groups:
            group, heap = next(iter(self._groups.items()))
            while heap and heap[0][1].state is not RequestState.WAITING:
                heapq.heappop(heap)
            if heap:
                return heap[0][1]
            del self._groups[group]
        return None

    def take(self) -> Handling:
        """Remove who is next; it is the next group's turn then."""
        group, heap = next(iter(self._groups.items()))
        _, handling = heapq.heappop(heap)
        if heap:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        self._count -= 1
        return handling

    def oldest(self) -> Handling | None:
        """Return who has been waiting longest; None when nobody waits."""
        while self._oldest:
            if _waits(self._oldest[0]):
                return self._oldest[0][-1]
            heapq.heappop(self._oldest)
        return None

    def __iter__(self) -> Iterator[Handling]:
        for heap in self._groups.values():
            yield from (handling for _, handling in heap if handling.state is RequestState.WAITING)

    def _forget_skipped(self) -> None:
        self._skipped = 0
        for group, heap in list(self._groups.items()):
            heap[:] = [each for each in heap if each[1].state is RequestState.WAITING]
            heapq.heapify(heap)
            if not heap:
                del self._groups[group]


def _waits(entry: tuple[float, int, int, Handling]) -> bool:
    """Return whether a request still waits since then."""
    _, _, epoch, handling = entry
    return handling.state is RequestState.WAITING and handling.epoch == epoch
