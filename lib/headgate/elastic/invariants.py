"""What always holds of a pool, between any two calls."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headgate.elastic.fleet import Fleet
from headgate.elastic.handling import Requests
from headgate.elastic.meter import Meter
from headgate.elastic.request import Handling, RequestState
from headgate.elastic.worker import DrainStage, Worker, WorkerState

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
