"""Scaling: who is woken and who is drained for as many workers as wanted; and what always holds of a pool."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headgate.elastic.draining import Draining
from headgate.elastic.fleet import Fleet
from headgate.elastic.handling import Requests
from headgate.elastic.meter import Meter
from headgate.elastic.request import Handling, RequestState
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import DrainStage, Pin, Worker, WorkerState

_AWAKE = (WorkerState.ACTIVE, WorkerState.STARTING)


class Scaling:
    """Carries a number of workers out. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, draining: Draining) -> None:
        self._config = config
        self._fleet = fleet
        self._draining = draining

    @property
    def highest(self) -> int:
        """The most workers that can be awake."""
        usable = sum(self._is_usable(worker) for worker in self._fleet.workers.values())
        return min(self._config.max_workers, usable)

    @property
    def lowest(self) -> int:
        """The fewest that may be awake."""
        return min(self._config.min_workers, self.highest)

    def reach(self, wanted: int, reason: str, now: float) -> None:
        """Wake or drain until `wanted` workers are awake. What starts is not dropped, unless it waits for a lease."""
        awake = [worker for worker in self._fleet.in_state(*_AWAKE) if not worker.has_to_go]
        if len(awake) < wanted:
            self._grow(wanted - len(awake), reason, now)
        elif len(awake) > wanted:
            self._shrink(awake, wanted, reason, now)

    def follow_pins(self, now: float) -> None:
        """Carry out what an operator decided for single workers."""
        for worker in self._fleet.workers.values():
            if worker.pin is Pin.AWAKE:
                self._raise(worker, "an operator keeps it awake", now)
            elif worker.has_to_go and worker.state is WorkerState.ACTIVE:
                self._draining.begin(worker, "an operator keeps it asleep", now)
            elif worker.has_to_go and worker.state is WorkerState.STARTING and not worker.is_leased:
                self._fleet.forgo(worker, "an operator keeps it asleep", now)

    def _grow(self, missing: int, reason: str, now: float) -> None:
        turning = [worker for worker in self._fleet.in_state(WorkerState.DRAINING) if worker.can_turn_back]
        turning.sort(key=lambda worker: -len(worker.requests))
        asleep = [worker for worker in self._fleet.in_state(WorkerState.INACTIVE) if not worker.has_to_go]
        asleep.sort(key=lambda worker: worker.failures)
        for worker in [*turning, *asleep][:missing]:
            self._raise(worker, reason, now)

    def _raise(self, worker: Worker, reason: str, now: float) -> None:
        if worker.can_turn_back:
            self._fleet.activate(worker, reason, now)
        elif worker.state is WorkerState.INACTIVE:
            self._fleet.wake(worker, reason, now)

    def _shrink(self, awake: list[Worker], wanted: int, reason: str, now: float) -> None:
        surplus = len(awake) - wanted
        for worker in awake:
            if surplus and worker.state is WorkerState.STARTING and not worker.is_leased and worker.pin is None:
                self._fleet.forgo(worker, reason, now)
                surplus -= 1
        # Only those that are ready count here: what starts can still fail.
        ready = list(self._fleet.active.values())
        surplus = min(surplus, len(ready) - wanted)
        idlest = sorted(
            (worker for worker in ready if worker.pin is not Pin.AWAKE and worker.held_until <= now),
            key=lambda worker: (worker.tokens, len(worker.requests)),
        )
        for worker in idlest[: max(0, surplus)]:
            self._draining.begin(worker, reason, now)

    @staticmethod
    def _is_usable(worker: Worker) -> bool:
        return worker.state is not WorkerState.FAILED and not worker.has_to_go


_WITH_REQUESTS = {WorkerState.ACTIVE, WorkerState.DRAINING}


def validate(fleet: Fleet, requests: Requests, meter: Meter) -> None:
    """Assert that no request is lost, none is with two workers, and none with one that cannot answer it."""
    for worker in fleet.workers.values():
        _check_worker(worker, requests.all)
    assert fleet.active == {each.worker_id: each for each in fleet.in_state(WorkerState.ACTIVE)}
    assert fleet.open == {each.worker_id: each for each in fleet.workers.values() if each.has_room}
    waiting = [handling for handling in requests.line if handling.request.request_id in requests.all]
    assert len(waiting) == len(requests.line) == len({handling.order for handling in waiting})
    for request_id, handling in requests.all.items():
        assert handling.request.request_id == request_id
        _check_request(handling, fleet)
    shares = sum(worker.share for worker in fleet.workers.values())
    assert math.isclose(shares + meter.waiting, meter.worth, abs_tol=1e-6), (shares, meter.waiting, meter.worth)


def _check_worker(worker: Worker, requests: Mapping[str, Handling]) -> None:
    assert not worker.requests or worker.state in _WITH_REQUESTS, f"{worker.worker_id} is {worker.state} with requests"
    assert worker.tokens == sum(worker.requests.values())
    assert (worker.stage is not None) == (worker.state is WorkerState.DRAINING)
    if worker.stage in {DrainStage.CONFIRMING, DrainStage.SLEEPING}:
        assert not worker.requests, f"{worker.worker_id} goes to sleep with requests"
    for request_id in worker.requests:
        assert requests[request_id].worker_id == worker.worker_id
    assert worker.slots >= 1


def _check_request(handling: Handling, fleet: Fleet) -> None:
    if handling.state is RequestState.WAITING:
        assert not handling.worker_id
        assert not handling.has_begun, "what has begun to answer does not wait again"
        return
    worker = fleet.workers[handling.worker_id]
    assert handling.request.request_id in worker.requests
