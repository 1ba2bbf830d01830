"""Requests that a worker group sends by itself: the pool counts them, and says where each should be."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from headgate.elastic.commands import Abort, Cut, Fail, Send
from headgate.elastic.pool import ElasticPool
from headgate.elastic.request import ElasticRequest, RequestState
from headgate.elastic.service.steps import Steps
from headgate.elastic.service.tasks import Tasks
from headgate.elastic.verl.worker_group import LOGGER

_log = logging.getLogger(LOGGER)


class CountedRequests:
    """What is known to be under way: requests that were added, and more where the workers count more.

    Owned by one scheduler. A request that only workers count has a name of its own here, and ends when they count
    fewer; who ended is not known, so it is the oldest: the mean time of a request comes out right all the same.
    """

    def __init__(self) -> None:
        self.added: dict[str, None] = {}
        self._surplus: dict[str, None] = {}
        self._counted = 0
        self._numbers = itertools.count(1)
        self._steps: Steps | None = None
        self._tasks: Tasks | None = None

    def begin(self, steps: Steps, tasks: Tasks) -> None:
        """Hand the pool what was added before it began to work."""
        self._steps, self._tasks = steps, tasks
        self._do(lambda pool, now: [pool.submit(ElasticRequest(request_id), now) for request_id in self.added])

    def end(self) -> None:
        """Go on counting without a pool."""
        self._steps = self._tasks = None
        self._surplus.clear()

    def add(self, request_id: str) -> None:
        """Count a request; the same id again is the same request."""
        self.added[request_id] = None
        self._do(lambda pool, now: pool.submit(ElasticRequest(request_id), now))

    def complete(self, request_id: str) -> None:
        """Count a request no more; legal twice."""
        if request_id in self.added:
            del self.added[request_id]
            self._do(lambda pool, now: _end(pool, request_id, now))

    def counted(self, total: int) -> None:
        """Take over how many requests all workers together say they run."""
        self._counted = total
        missing = max(0, total - len(self.added)) - len(self._surplus)
        new = [f"counted-{next(self._numbers)}" for _ in range(missing)]
        gone = list(self._surplus)[: max(0, -missing)]
        if not new and not gone:
            return
        self._surplus |= dict.fromkeys(new)
        for request_id in gone:
            del self._surplus[request_id]

        def act(pool: ElasticPool, now: float) -> None:
            for request_id in new:
                pool.submit(ElasticRequest(request_id), now)
            for request_id in gone:
                _end(pool, request_id, now)

        self._do(act)

    def carry_out(self, command: Send | Abort | Cut | Fail) -> None:
        """Do what can be done for a request: it is the group that sends it."""
        match command:
            case Send():
                _log.debug("Redistributed 1 requests")
            case Abort():
                assert self._tasks is not None, "commands come from a pool that works"
                self._tasks.start(self._hand_over(command), f"hand over {command.request_id}")
            case Cut():
                pass
            case Fail():
                _log.warning("Request %s is counted no more: %s", command.request_id, command.says)
                self.added.pop(command.request_id, None)
                self._surplus.pop(command.request_id, None)

    async def _hand_over(self, command: Abort) -> None:
        """Count a request of a draining worker for another one."""
        request_id, epoch = command.request_id, command.epoch
        why = f"worker {command.worker_id} drains"
        self._do(lambda pool, now: pool.broke(request_id, epoch, why, now, was_aborted=True))

    def _do(self, act: Callable[[ElasticPool, float], object]) -> None:
        if self._steps is not None and self._steps.is_open:
            self._steps.do(act)


def _end(pool: ElasticPool, request_id: str, now: float) -> None:
    handling = pool.requests.get(request_id)
    if handling is None:
        return
    if handling.state is RequestState.WAITING:
        pool.withdraw(request_id, now)
    else:
        pool.ended(request_id, handling.epoch, now)
