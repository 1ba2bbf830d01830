"""Admission in front of a pool: it admits no more than the workers could take, and groups share that by weight."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headgate.admission import (
    MOST_SLOTS,
    SUCCESS,
    AdmissionController,
    Correlation,
    Denied,
    Domain,
    OutcomeKind,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.laws import AimdLaw
from headgate.core import Clock
from headgate.core.errors import AdmissionDeniedError
from headgate.core.events import Emit
from headgate.core.status import RequestStatus
from headgate.elastic.errors import PoolClosedError, PoolFullError
from headgate.elastic.gateway.status import AdmissionView
from headgate.elastic.service import ElasticService, PoolStatus
from headgate.elastic.settings import ElasticConfig

WITHDRAWN: Final = RequestOutcome(OutcomeKind.LOCAL_CANCELLED)
FAILED: Final = RequestOutcome(OutcomeKind.PROVIDER_FAILURE)

_LOOK_EVERY_S: Final = 1.0
"""Capacity changes when an engine reports other slots. It is updated after a change, but once per burst of changes."""

_LONGEST_RETRY_S: Final = 60.0


class PoolAdmission:
    """Admits the requests of one gateway to its pool, under the keys (pool, model, chat).

    It adds to the pool's own queue, in which groups take turns request by request:

    - A limit that follows the pool's capacity: at most as many requests are in the pool as its `max_workers` largest
      workers take together. That is enough for a policy to want every worker; further requests wait here, where each
      costs only a future.
    - Groups share capacity by weight while they wait here; inside the pool's queue they do not.
    - `max_queue` bounds how many wait, `queue_timeout` how long, and refused clients are told when to retry.

    Failures do not lower the limit and open no circuit breaker: the pool judges each worker by itself, and a client
    whose requests crash workers must not stop the others.
    """

    def __init__(
        self, service: ElasticService, config: ElasticConfig, weights: Mapping[str, float], clock: Clock, emit: Emit
    ) -> None:
        self._service = service
        self._config = config
        self._weights = weights
        self._clock = clock
        self._admission = RequestAdmission(AdmissionController(AimdLaw), clock, emit)
        self._keys: dict[str, RequestKey] = {}
        self._limit = 0
        self._service_s = 0.0
        self.look(service.status())

    async def follow(self) -> None:
        """Follow the capacity of the pool until cancelled."""
        while True:
            await self._service.changed()
            self.look(self._service.status())
            await self._clock.sleep(_LOOK_EVERY_S)

    def look(self, status: PoolStatus) -> None:
        """Update the limit to the pool's capacity."""
        largest = heapq.nlargest(self._config.max_workers, (worker.slots for worker in status.workers))
        self._service_s = status.demand.service_s
        if (limit := max(1, sum(largest))) != self._limit:
            self._limit = limit
            self._admission.set_provider_cap(self._service.name, limit)

    async def enter(self, model: str, group: str, request_id: str) -> RequestLease:
        """Return a lease to send a request to the pool, after waiting for its turn; release it with `leave`.

        Raises:
            PoolFullError: too many are waiting already, or it has waited too long.
            PoolClosedError: the gateway is stopping.
        """
        key = self._keys.get(model) or self._new_key(model)
        weight = self._weights.get(group, 1.0)
        item = RequestItem(key, group, weight, None, Correlation(request_id))
        lease = self._admission.try_acquire(item)
        if not isinstance(lease, Denied):
            return lease
        if (waiting := self._admission.waiting()) >= self._config.max_queue:
            raise PoolFullError(
                f"{waiting} requests wait in front of the pool {self._service.name}, as many as may (max_queue)",
                retry_after_s=self._retry_after_s(waiting),
            )
        longest_s = self._config.queue_timeout
        deadline = None if longest_s is None else self._clock.monotonic() + longest_s
        try:
            return await self._admission.acquire(item._replace(deadline=deadline))
        except AdmissionDeniedError as denied:
            raise self._refusal(denied) from None

    def leave(self, lease: RequestLease, outcome: RequestOutcome = SUCCESS) -> None:
        """Release a lease; the next waiter gets it in the same iteration of the event loop."""
        self._admission.release(lease, outcome)

    def close(self, reason: str) -> None:
        """Refuse all present and future waiters."""
        self._admission.shutdown(reason)

    def view(self) -> AdmissionView:
        """Return the state of admission."""
        return AdmissionView(
            limit=self._limit,
            in_flight=self._admission.in_flight(self._service.name),
            waiting=self._admission.waiting(),
            most_waiting=self._config.max_queue,
        )

    def requests(self) -> list[RequestStatus]:
        """Return the status of every model that was requested, for metrics."""
        return [
            replace(key, models=(key.model,), cap=self._limit, limit=min(key.limit, self._limit))
            for key in self._admission.statuses()
        ]

    def _new_key(self, model: str) -> RequestKey:
        key = self._keys[model] = RequestKey(ProviderModel(self._service.name, model), Domain.CHAT)
        self._admission.register(key.account, MOST_SLOTS, model)
        return key

    def _retry_after_s(self, waiting: int) -> float:
        """Return after how many seconds the waiting requests will have been served, at the pace of all workers."""
        return min(max(1.0, self._service_s * (waiting + 1) / self._limit), _LONGEST_RETRY_S)

    def _refusal(self, denied: AdmissionDeniedError) -> PoolFullError | PoolClosedError:
        if denied.reason == "shutdown":
            return PoolClosedError(f"The gateway of the pool {self._service.name} stops")
        return PoolFullError(
            f"The request was not admitted to the pool {self._service.name} within queue_timeout "
            f"{self._config.queue_timeout:g} s",
            retry_after_s=self._retry_after_s(self._admission.waiting()),
        )
