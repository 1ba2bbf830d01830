"""Requests of an elastic pool, and the queue in front of its workers: groups take turns, each in order of arrival."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class ElasticRequest:
    """A request to be answered.

    Attributes:
        request_id: unique; the same id again is the same request.
        tokens: tokens that it is expected to take, prompt and answer; 1 if unknown.
        prefixes: hashes of ever longer prefixes; requests that share them go to the same worker if possible.
        group: the group that it belongs to; groups take turns in the queue.
    """

    request_id: str
    tokens: int = 1
    prefixes: tuple[int, ...] = ()
    group: str = ""


class RequestState(StrEnum):
    """State of a request."""

    WAITING = "waiting"
    RUNNING = "running"
    ABORTING = "aborting"
    """Its worker drains and its time is up: once the engine has aborted it, it goes to another worker."""


@dataclass(slots=True)
class OpenRequest:
    """A request that has not ended. Owned and changed by the pool only.

    Attributes:
        request: the request as submitted.
        order: its position in the queue, which it keeps when it is handed over.
        arrived_at: monotonic seconds.
        state: its state.
        worker_id: the worker that has it; empty while it waits.
        epoch: grows with every worker that it is given to; reports of an older epoch change nothing.
        waits_since: when it last began to wait, in monotonic seconds.
        given_at: when it was given to its worker, in monotonic seconds.
        has_begun: whether part of the answer has reached the client, so that it can no longer be handed over unnoticed.
        hand_overs: how often it was handed over to another worker.
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
    """The request is accepted; `again` if it was open already."""

    request_id: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is not accepted.

    Attributes:
        reason: `full` or `closed`.
        says: the reason, as a sentence.
        retry_after_s: seconds after which a retry can help; None if it cannot.
    """

    reason: str
    says: str
    retry_after_s: float | None = None


_SKIPPED: Final = 1_000
"""Requests that have left stay in the heaps until there are more of them than this plus those that wait."""


class RequestQueue:
    """Waiting requests. Owned by one pool.

    A request that is handed over keeps its order, and so is ahead of all that arrived later. Requests that have left
    are skipped when their turn comes, as their own state says that they no longer wait.

    Invariant: memory is proportional to the number of waiting requests, however many clients give up while waiting.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[str, list[tuple[int, OpenRequest]]] = OrderedDict()
        self._oldest: list[tuple[float, int, int, OpenRequest]] = []
        self._count = 0
        self._skipped = 0

    def __len__(self) -> int:
        return self._count

    def join(self, handling: OpenRequest) -> None:
        """Add a waiting request."""
        heapq.heappush(self._groups.setdefault(handling.request.group, []), (handling.order, handling))
        heapq.heappush(self._oldest, (handling.waits_since, handling.order, handling.epoch, handling))
        self._count += 1
        if len(self._oldest) > 2 * self._count + _SKIPPED:
            self._oldest = [each for each in self._oldest if _waits(each)]
            heapq.heapify(self._oldest)

    def leave(self) -> None:
        """Record that a waiting request has left the queue."""
        self._count -= 1
        self._skipped += 1
        if self._skipped > self._count + _SKIPPED:
            self._forget_skipped()

    def head(self) -> OpenRequest | None:
        """Return the next request; None if none waits."""
        while self._groups:
            group, heap = next(iter(self._groups.items()))
            while heap and heap[0][1].state is not RequestState.WAITING:
                heapq.heappop(heap)
            if heap:
                return heap[0][1]
            del self._groups[group]
        return None

    def take(self) -> OpenRequest:
        """Remove and return the next request, after `head` has returned it; then it is the next group's turn."""
        group, heap = next(iter(self._groups.items()))
        _, handling = heapq.heappop(heap)
        if heap:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        self._count -= 1
        return handling

    def oldest(self) -> OpenRequest | None:
        """Return the request that has been waiting longest; None if none waits."""
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
