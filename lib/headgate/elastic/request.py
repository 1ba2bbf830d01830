"""A request on its way through an elastic pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
class Handling:
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
