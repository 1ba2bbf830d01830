"""The life cycle of requests: into the queue, to a worker, perhaps to another one, to their end."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from headgate.core import ReleaseOutcome, events
from headgate.elastic.demand import Meter
from headgate.elastic.errors import PoolFullError, RequestLostError
from headgate.elastic.fleet import Fleet
from headgate.elastic.outbox import Abort, Cut, Fail, Outbox, Send
from headgate.elastic.queue import Accepted, ElasticRequest, OpenRequest, Refused, RequestQueue, RequestState
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import Worker

_SOONEST_RETRY_S: Final = 1.0


_REMEMBERED: Final = 10_000
"""Most prefixes whose worker is remembered."""


class Affinity:
    """Prefix -> worker, for the most recently used prefixes. Owned by one pool."""

    def __init__(self) -> None:
        self._workers: OrderedDict[int, str] = OrderedDict()

    def worker_of(self, prefixes: Sequence[int]) -> str | None:
        """Return the worker that has the longest known of these prefixes; None if none is known."""
        for prefix in reversed(prefixes):
            if (worker_id := self._workers.get(prefix)) is not None:
                return worker_id
        return None

    def note(self, prefixes: Sequence[int], worker_id: str) -> None:
        """Record that a worker computes these prefixes."""
        for prefix in prefixes:
            self._workers[prefix] = worker_id
            self._workers.move_to_end(prefix)
        while len(self._workers) > _REMEMBERED:
            self._workers.popitem(last=False)

    def forget(self, worker_id: str) -> None:
        """Forget the prefixes of a worker whose cache was flushed."""
        if self._workers:
            self._workers = OrderedDict((prefix, who) for prefix, who in self._workers.items() if who != worker_id)


class Requests:
    """All requests that have not ended. Owned by one pool.

    Invariants: a request is either at one worker or in the queue; each time it is given to a worker its epoch grows, so
    that reports of a former worker change nothing.

    Attributes:
        queue: those that wait.
        affinity: where prefixes of requests were last computed.
        joined: how many times a request joined the queue, including hand-overs.
        all: request id -> request that has not ended.
        closed_because: why no more requests are accepted; empty while they are.
    """

    def __init__(self, config: ElasticConfig, fleet: Fleet, meter: Meter, outbox: Outbox) -> None:
        self.queue = RequestQueue()
        self.affinity = Affinity()
        self.all: dict[str, OpenRequest] = {}
        self._config = config
        self._fleet = fleet
        self._meter = meter
        self._outbox = outbox
        self._order = 0
        self.joined = 0
        self._slots = fleet.slots
        self.closed_because = ""

    def submit(self, request: ElasticRequest, now: float) -> Accepted | Refused:
        """Accept a request into the queue, or refuse it."""
        if request.request_id in self.all:
            return Accepted(request.request_id, again=True)
        if self.closed_because:
            return Refused("closed", self.closed_because)
        # A request that finds room at once does not wait, so `max_queue` does not apply to it.
        has_to_wait = len(self.queue) > 0 or not self._fleet.open
        if has_to_wait and len(self.queue) >= self._config.max_queue:
            says = f"max_queue allows {self._config.max_queue} waiting requests (got one more)"
            return Refused("full", says, self._retry_after_s())
        handling = OpenRequest(request, self._order, now, now)
        self._order += 1
        self.all[request.request_id] = handling
        self._meter.arrived += 1
        self._join(handling, now)
        return Accepted(request.request_id)

    def send(self, now: float) -> None:
        """Give waiting requests to workers as long as these have room."""
        while (handling := self.queue.head()) is not None:
            worker = choose(self._fleet.open.values(), handling.request, self.affinity)
            if worker is None:
                break
            self.queue.take()
            self._give(handling, worker, now)
        self._slots = self._fleet.slots
        self._meter.wait(len(self.queue), self._slots, now)

    def begun(self, request_id: str, epoch: int) -> ReleaseOutcome:
        """Record that part of the answer is about to go to the client; it must not unless this returns `released`."""
        handling = self._current(request_id, epoch)
        if isinstance(handling, ReleaseOutcome):
            return handling
        if handling.state is RequestState.ABORTING and not handling.has_begun:
            return ReleaseOutcome.STALE
        handling.has_begun = True
        return ReleaseOutcome.RELEASED

    def ended(self, request_id: str, epoch: int, now: float) -> ReleaseOutcome:
        """Record that a request was answered."""
        handling = self._current(request_id, epoch)
        if isinstance(handling, ReleaseOutcome):
            return handling
        self._meter.took(now - handling.given_at, now)
        worker = self._leave(handling, now)
        worker.breaks = worker.failures = worker.unanswered = 0
        del self.all[request_id]
        return ReleaseOutcome.RELEASED

    def broke(self, request_id: str, epoch: int, why: str, now: float, *, was_aborted: bool) -> ReleaseOutcome:
        """Record that a worker did not answer a request: it is handed over to another one, or is lost."""
        handling = self._current(request_id, epoch)
        if isinstance(handling, ReleaseOutcome):
            return handling
        self._leave(handling, now)
        if not was_aborted and handling.state is not RequestState.ABORTING:
            handling.losses += 1
        self._hand_over(handling, why, now)
        return ReleaseOutcome.RELEASED

    def withdraw(self, request_id: str, now: float) -> bool:
        """Withdraw a request whose client is gone; return whether it was open."""
        handling = self.all.pop(request_id, None)
        if handling is None:
            return False
        if handling.state is RequestState.WAITING:
            self._quit_line(handling, now)
        else:
            self._outbox.want(Cut(request_id, handling.worker_id, handling.epoch))
            self._leave(handling, now)
        return True

    def abort(self, handling: OpenRequest) -> None:
        """Abort a request of a draining worker, to hand it over."""
        handling.state = RequestState.ABORTING
        self._outbox.want(Abort(handling.request.request_id, handling.worker_id, handling.epoch))

    def take_from(self, worker: Worker, why: str, now: float) -> None:
        """Take all requests from a failed worker, and ignore anything it still answers."""
        for request_id in list(worker.requests):
            handling = self.all[request_id]
            self._outbox.want(Cut(request_id, worker.worker_id, handling.epoch))
            if handling.state is not RequestState.ABORTING:
                handling.losses += 1
            self._leave(handling, now)
            self._hand_over(handling, why, now)

    def on(self, worker: Worker) -> list[OpenRequest]:
        """Return the requests at a worker."""
        return [self.all[request_id] for request_id in worker.requests]

    def expire(self, now: float) -> None:
        """End requests that have waited too long."""
        limit_s = self._config.queue_timeout
        while limit_s is not None and (oldest := self.queue.oldest()) is not None:
            if oldest.waits_since + limit_s > now:
                return
            why = f"queue_timeout allows {limit_s:g} s of waiting, and {self._fleet.why_full()}"
            self._quit_line(oldest, now)
            self._lose(oldest, PoolFullError.code, why)

    def expires_at(self) -> float:
        """Return when the next request will have waited too long."""
        if self._config.queue_timeout is None or (oldest := self.queue.oldest()) is None:
            return math.inf
        return oldest.waits_since + self._config.queue_timeout

    def _current(self, request_id: str, epoch: int) -> OpenRequest | ReleaseOutcome:
        handling = self.all.get(request_id)
        if handling is None:
            return ReleaseOutcome.UNKNOWN
        if handling.epoch != epoch or handling.state is RequestState.WAITING:
            return ReleaseOutcome.STALE
        return handling

    def _join(self, handling: OpenRequest, now: float) -> None:
        handling.state = RequestState.WAITING
        handling.worker_id = ""
        handling.waits_since = now
        self.joined += 1
        self.queue.join(handling)
        self._meter.wait(len(self.queue), self._slots, now)

    def _quit_line(self, handling: OpenRequest, now: float) -> None:
        handling.state = RequestState.RUNNING  # makes the queue skip it
        self.queue.leave()
        self._meter.wait(len(self.queue), self._slots, now)

    def _give(self, handling: OpenRequest, worker: Worker, now: float) -> None:
        request = handling.request
        handling.state = RequestState.RUNNING
        handling.worker_id = worker.worker_id
        handling.epoch += 1
        handling.given_at = now
        worker.requests[request.request_id] = request.tokens
        worker.tokens += request.tokens
        self._fleet.note_room(worker)
        if request.prefixes:
            self.affinity.note(request.prefixes, worker.worker_id)
        self._meter.share(worker, now)
        self._outbox.want(Send(request.request_id, worker.worker_id, handling.epoch))

    def _leave(self, handling: OpenRequest, now: float) -> Worker:
        worker = self._fleet.workers[handling.worker_id]
        worker.tokens -= worker.requests.pop(handling.request.request_id)
        self._fleet.note_room(worker)
        self._meter.share(worker, now)
        return worker

    def _hand_over(self, handling: OpenRequest, why: str, now: float) -> None:
        request_id = handling.request.request_id
        if handling.has_begun:
            self._lose(handling, RequestLostError.code, f"{why}, after a part of the answer had been sent")
        elif handling.losses >= self._config.max_losses:
            self._lose(handling, RequestLostError.code, f"{handling.losses} workers failed with it, the last: {why}")
        else:
            handling.hand_overs += 1
            self._outbox.tell(events.RequestHandedOver(self._outbox.pool, request_id, handling.worker_id, why))
            self._join(handling, now)

    def _lose(self, handling: OpenRequest, code: str, why: str) -> None:
        request_id = handling.request.request_id
        del self.all[request_id]
        self._outbox.tell(events.RequestLost(self._outbox.pool, request_id, code, why))
        self._outbox.want(Fail(request_id, code, why))

    def _retry_after_s(self) -> float:
        slots = max(1.0, self._slots * len(self._fleet.active))
        return max(_SOONEST_RETRY_S, len(self.queue) / slots * self._meter.service_s)


_EXTRA_SHARE: Final = 4
"""A worker with a request's prefix is preferred while it has at most 1/4 of its slots more in use than the least loaded
one: recomputing a prefix costs a fraction of a request, waiting in an engine's queue a whole one."""


def choose(workers: Iterable[Worker], request: ElasticRequest, affinity: Affinity) -> Worker | None:
    """Return the worker, among those with room, that a request should go to; None if none has memory for it."""
    open_ = [worker for worker in workers if _has_tokens(worker, request.tokens)]
    if not open_:
        return None
    least = min(open_, key=lambda worker: (worker.tokens / worker.slots, len(worker.requests), worker.number))
    if not request.prefixes:
        return least
    worker_id = affinity.worker_of(request.prefixes)
    akin = next((worker for worker in open_ if worker.worker_id == worker_id), None)
    if akin is None or len(akin.requests) > len(least.requests) + max(1, akin.slots // _EXTRA_SHARE):
        return least
    return akin


def _has_tokens(worker: Worker, tokens: int) -> bool:
    """Return whether the engine has memory for a request; an idle engine takes any."""
    if worker.load is None or worker.load.token_slots is None or not worker.requests:
        return True
    return worker.tokens + tokens <= worker.load.token_slots
