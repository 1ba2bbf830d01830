"""Requests of an elastic pool, and the queue in front of its workers: groups take turns, first come first served."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class ElasticRequest:
    """What somebody wants answered.

    Attributes:
        request_id: unique; the same id again is the same request.
        tokens: that it is expected to take, prompt and answer; 1 where nobody knows.
        prefixes: hashes of its beginning, each of a longer one; requests that share them go to one worker if they can.
        group: whose it is; groups take turns in the queue.
    """

    request_id: str
    tokens: int = 1
    prefixes: tuple[int, ...] = ()
    group: str = ""


class RequestState(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    ABORTING = "aborting"
    """Its worker drains and its time is up: once the engine has let go of it, it goes to another one."""


@dataclass(slots=True)
class OpenRequest:
    """A request that has not ended. Owned and changed by the pool only.

    Attributes:
        request: what is wanted.
        order: its place in line, which it keeps when it is handed over.
        arrived_at: monotonic seconds.
        state: where it stands.
        worker_id: who has it; empty while it waits.
        epoch: grows with every worker that it is given to; answers of an older epoch change nothing.
        waits_since: when it last began to wait.
        given_at: when it was given to its worker.
        has_begun: a part of the answer has reached the client, so that it cannot be given to another worker unseen.
        hand_overs: how often it was taken from one worker for another.
        losses: how many workers failed with it.
    """

    request: ElasticRequest
    order: int
    arrived_at: float
    waits_since: float
    state: RequestState = RequestState.WAITING
    worker_id: str = ""
    epoch: int = 0
    given_at: float = 0.0
    has_begun: bool = False
    hand_overs: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request is in; `again` tells that it was already."""

    request_id: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is not taken.

    Attributes:
        reason: `full` or `closed`.
        says: the sentence.
        retry_after_s: when asking again can help; None where it cannot.
    """

    reason: str
    says: str
    retry_after_s: float | None = None


_SKIPPED: Final = 1_000
"""So many that left may stand in line, or as many as wait if they are more: then the line is made anew without them."""


class RequestQueue:
    """Requests that wait. Owned by one pool.

    Who was handed over keeps its order, and so stands before all that came after it. Requests that left are skipped
    when their turn comes: whether one waits is told by its own state.

    Invariant: what is kept is in proportion to what waits, however many clients lose patience behind a slow head.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[str, list[tuple[int, OpenRequest]]] = OrderedDict()
        self._oldest: list[tuple[float, int, int, OpenRequest]] = []
        self._count = 0
        self._skipped = 0

    def __len__(self) -> int:
        return self._count

    def join(self, handling: OpenRequest) -> None:
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

    def head(self) -> OpenRequest | None:
        """Return who is next; None when nobody waits."""
        while self._groups:
            group, heap = next(iter(self._groups.items()))
            while heap and heap[0][1].state is not RequestState.WAITING:
                heapq.heappop(heap)
            if heap:
                return heap[0][1]
            del self._groups[group]
        return None

    def take(self) -> OpenRequest:
        """Remove who is next; it is the next group's turn then."""
        group, heap = next(iter(self._groups.items()))
        _, handling = heapq.heappop(heap)
        if heap:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        self._count -= 1
        return handling

    def oldest(self) -> OpenRequest | None:
        """Return who has been waiting longest; None when nobody waits."""
        while self._oldest:
            if _waits(self._oldest[0]):
                return self._oldest[0][-1]
            heapq.heappop(self._oldest)
        return None

    def __iter__(self) -> Iterator[OpenRequest]:
        for heap in self._groups.values():
            yield from (handling for _, handling in heap if handling.state is RequestState.WAITING)

    def _forget_skipped(self) -> None:
        self._skipped = 0
        for group, heap in list(self._groups.items()):
            heap[:] = [each for each in heap if each[1].state is RequestState.WAITING]
            heapq.heapify(heap)
            if not heap:
                del self._groups[group]


def _waits(entry: tuple[float, int, int, OpenRequest]) -> bool:
    _, _, epoch, handling = entry
    return handling.state is RequestState.WAITING and handling.epoch == epoch
