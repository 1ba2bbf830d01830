"""Which workers are awake: waking and draining them, judging their readings, and the invariants of a pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from headgate.core import events
from headgate.elastic.demand import Desired, Meter
from headgate.elastic.fleet import Fleet
from headgate.elastic.outbox import Outbox
from headgate.elastic.queue import OpenRequest, RequestState
from headgate.elastic.requests import Requests
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import DrainStage, EngineLoad, Pin, Worker, WorkerState

_READINGS: Final = 2
"""Idle readings in a row before a worker is put to sleep: between two requests an engine may look idle once."""


class Drain:
    """Takes draining workers from `emptying` to `sleeping`. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, requests: Requests, outbox: Outbox) -> None:
        self._config = config
        self._fleet = fleet
        self._requests = requests
        self._outbox = outbox

    def begin(self, worker: Worker, reason: str, now: float) -> None:
        """Start to drain a worker, which takes no further requests."""
        self._fleet.drain(worker, reason, now)
        self.go_on(worker, now)

    def hurry(self, worker: Worker, reason: str, now: float, *, within_s: float) -> None:
        """Drain a worker that must give its lease back within `within_s`: requests not yet answering move at once."""
        worker.is_lease_lost = True
        if worker.state is WorkerState.ACTIVE:
            self._fleet.drain(worker, reason, now)
        if worker.state is WorkerState.DRAINING and worker.stage is not DrainStage.SLEEPING:
            self._move(worker, now)
            worker.drain_by = min(worker.drain_by, now + within_s)
            self.go_on(worker, now)
            if worker.stage is DrainStage.MOVING:
                self._fleet.look_at(worker, worker.drain_by)

    def go_on(self, worker: Worker, now: float) -> None:
        """Begin to confirm that a draining worker is idle, once it has no requests left."""
        if worker.requests or worker.stage not in {DrainStage.EMPTYING, DrainStage.MOVING}:
            return
        worker.stage = DrainStage.CONFIRMING
        worker.idle_readings = 0
        worker.drain_by = now + self._config.drain_timeout
        self._fleet.read(worker)
        self._fleet.look_at(worker, worker.drain_by)

    def confirmed(self, worker: Worker, now: float) -> None:
        """Apply the last reading; a worker found idle often enough is put to sleep."""
        if worker.stage is not DrainStage.CONFIRMING or worker.load is None:
            return
        if not worker.load.is_idle:
            worker.idle_readings = 0
            counted = worker.load.running + worker.load.waiting
            self._outbox.tell(events.CountsDiffer(self._outbox.pool, worker.worker_id, len(worker.requests), counted))
        elif worker.load.is_asleep:
            self._fleet.asleep(worker, "it sleeps already", now)
            return
        else:
            worker.idle_readings += 1
            if worker.idle_readings >= (1 if worker.is_lease_lost else _READINGS):
                self._fleet.sleep(worker, now)
                return
        self._fleet.look_at(worker, min(worker.drain_by, now + self._config.confirm_interval))

    def due(self, worker: Worker, now: float) -> None:
        """Check a draining worker as scheduled."""
        if now < worker.drain_by:
            self._fleet.read(worker)
            interval_s = self._config.monitoring_interval
            if worker.stage is DrainStage.CONFIRMING:
                interval_s = self._config.confirm_interval
            self._fleet.look_at(worker, min(worker.drain_by, now + interval_s))
        elif worker.stage is DrainStage.EMPTYING:
            self._move(worker, now)
        elif worker.stage is DrainStage.MOVING:
            self._end_streams(worker, now)
        elif worker.stage is DrainStage.CONFIRMING:
            self._busy_with_others(worker, now)
        else:
            self.give_up(worker, f"it was not asleep after {now - worker.since:.0f} s", now)

    def give_up(self, worker: Worker, why: str, now: float) -> None:
        """Mark a worker as failed; its requests go to others."""
        self._requests.take_from(worker, why, now)
        self._fleet.fail(worker, why, now)

    def _move(self, worker: Worker, now: float) -> None:
        """Abort requests whose answer has not begun, to hand them over; answers in progress may go on for a while."""
        worker.stage = DrainStage.MOVING
        streams = 0
        for handling in self._requests.on(worker):
            if handling.has_begun:
                streams += 1
            elif handling.state is not RequestState.ABORTING:
                self._requests.abort(handling)
        self._patience(worker, now, self._config.stream_drain_timeout if streams else 0.0)

    def _end_streams(self, worker: Worker, now: float) -> None:
        left = self._requests.on(worker)
        if any(handling.state is RequestState.ABORTING for handling in left):
            self.give_up(worker, f"it did not abort {len(left)} requests", now)
            return
        for handling in left:
            self._requests.abort(handling)
        self._patience(worker, now, 0.0)

    def _patience(self, worker: Worker, now: float, at_least_s: float) -> None:
        aborts_s = self._config.engine_timeout * self._config.engine_attempts
        worker.drain_by = now + max(at_least_s, aborts_s)
        self._fleet.look_at(worker, min(worker.drain_by, now + self._config.monitoring_interval))

    def _busy_with_others(self, worker: Worker, now: float) -> None:
        """Keep an engine with foreign requests awake; unless it must sleep, it becomes active again."""
        if worker.has_to_go:
            worker.drain_by = now + self._config.drain_timeout
            self._fleet.look_at(worker, now)
        else:
            worker.held_until = now + self._config.drain_timeout
            self._fleet.activate(worker, "its engine works for others, and so cannot sleep", now)


_UNANSWERED: Final = 3
"""Unanswered readings in a row before a worker fails: one can be lost, and a long prefill can block two."""

_BREAKS: Final = 5
"""Broken requests in a row before a worker fails: an engine may answer its readings but none of its requests."""


class Health:
    """Judges workers by their readings. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, draining: Drain) -> None:
        self._config = config
        self._fleet = fleet
        self._drain = draining

    def read(self, worker: Worker, load: EngineLoad, now: float) -> None:
        """Apply a reading."""
        self._fleet.learn(worker, load, now)
        if worker.state is WorkerState.FAILED:
            if load.is_asleep:
                self._fleet.asleep(worker, "it answers again, asleep", now)
            else:
                self._drain.begin(worker, "it answers again", now)
        elif worker.state is WorkerState.INACTIVE:
            if load.is_asleep:
                self._fleet.rest(worker, now)
            else:
                self._drain.begin(worker, "it was found awake", now)
        elif worker.state is WorkerState.ACTIVE and (load.is_asleep or load.is_half_asleep):
            why = (
                f"it was found asleep; its last request: {worker.last_error}"
                if worker.breaks
                else "it was found asleep"
            )
            self._drain.give_up(worker, why, now)
        elif worker.state is WorkerState.DRAINING:
            self._drain.confirmed(worker, now)

    def unanswered(self, worker: Worker, why: str, now: float) -> None:
        """Record an unanswered reading."""
        worker.is_reading = False
        worker.unanswered += 1
        worker.last_error = why
        if worker.state is WorkerState.FAILED:
            self._fleet.try_later(worker, now)
        elif worker.unanswered >= _UNANSWERED:
            self._drain.give_up(worker, f"it did not answer {_UNANSWERED} readings, the last: {why}", now)
        else:
            self._fleet.look_at(worker, now + self._config.confirm_interval)

    def broke(self, worker: Worker, why: str, now: float) -> None:
        """Record that a request broke: the worker gets no more requests until it answers a reading."""
        if worker.state not in {WorkerState.ACTIVE, WorkerState.DRAINING}:
            return
        worker.breaks += 1
        worker.last_error = why
        if worker.breaks >= _BREAKS:
            self._drain.give_up(worker, f"{worker.breaks} requests in a row broke, the last: {why}", now)
        else:
            worker.is_suspect = True
            self._fleet.note_room(worker)
            self._fleet.read(worker)

    def due(self, worker: Worker, now: float) -> None:
        """Check a worker as scheduled."""
        if worker.state is WorkerState.DRAINING:
            self._drain.due(worker, now)
        elif worker.state is WorkerState.STARTING:
            self._drain.give_up(worker, f"it did not start in {self._config.start_timeout:g} s", now)
        else:
            self._fleet.read(worker)
            if worker.state is WorkerState.ACTIVE:
                self._fleet.look_at(worker, now + self._config.monitoring_interval)


_AWAKE = (WorkerState.ACTIVE, WorkerState.STARTING)


class Scaling:
    """Wakes and drains workers to reach the desired number. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, draining: Drain) -> None:
        self._config = config
        self._fleet = fleet
        self._drain = draining

    @property
    def highest(self) -> int:
        """The most workers that can be awake."""
        workers = self._fleet.workers.values()
        usable = [each for each in workers if each.state is not WorkerState.FAILED and not each.has_to_go]
        return min(self._config.max_workers, len(usable))

    @property
    def lowest(self) -> int:
        """The fewest workers that may be awake."""
        return min(self._config.min_workers, self.highest)

    def reach(self, desired: Desired, now: float) -> None:
        """Wake or drain workers to reach the desired number. A start is cancelled only while it waits for a lease."""
        awake = [worker for worker in self._fleet.in_state(*_AWAKE) if not worker.has_to_go]
        if len(awake) < desired.workers:
            self._grow(desired.workers - len(awake), desired.because, now)
        elif len(awake) > desired.workers:
            self._shrink(awake, desired, now)

    def follow_pins(self, now: float) -> None:
        """Apply an operator's decisions for single workers."""
        for worker in self._fleet.workers.values():
            if worker.pin is Pin.AWAKE:
                self._raise(worker, "an operator keeps it awake", now)
            elif worker.has_to_go and worker.state is WorkerState.ACTIVE:
                self._drain.begin(worker, "an operator keeps it asleep", now)
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

    def _shrink(self, awake: list[Worker], desired: Desired, now: float) -> None:
        surplus = len(awake) - desired.workers
        for worker in awake:
            if surplus and worker.state is WorkerState.STARTING and not worker.is_leased and worker.pin is None:
                self._fleet.forgo(worker, desired.because, now)
                surplus -= 1
        # Only ready workers count here, as starting ones can still fail.
        ready = list(self._fleet.active.values())
        surplus = min(surplus, len(ready) - desired.workers)
        free = [each for each in ready if each.pin is not Pin.AWAKE and (desired.at_once or each.held_until <= now)]
        free.sort(key=lambda worker: (worker.tokens, len(worker.requests)))
        for worker in free[: max(0, surplus)]:
            self._drain.begin(worker, desired.because, now)


_WITH_REQUESTS = {WorkerState.ACTIVE, WorkerState.DRAINING}


def validate(fleet: Fleet, requests: Requests, meter: Meter) -> None:
    """Assert that no request is lost, at two workers, or at a worker that cannot answer it."""
    for worker in fleet.workers.values():
        _check_worker(worker, requests.all)
    assert fleet.active == {each.worker_id: each for each in fleet.in_state(WorkerState.ACTIVE)}
    assert fleet.open == {each.worker_id: each for each in fleet.workers.values() if each.has_room}
    waiting = [handling for handling in requests.queue if handling.request.request_id in requests.all]
    assert len(waiting) == len(requests.queue) == len({handling.order for handling in waiting})
    for request_id, handling in requests.all.items():
        assert handling.request.request_id == request_id
        _check_request(handling, fleet)
    shares = sum(worker.share for worker in fleet.workers.values())
    assert math.isclose(shares + meter.waiting, meter.worth, abs_tol=1e-6), (shares, meter.waiting, meter.worth)


def _check_worker(worker: Worker, requests: Mapping[str, OpenRequest]) -> None:
    assert not worker.requests or worker.state in _WITH_REQUESTS, f"{worker.worker_id} is {worker.state} with requests"
    assert worker.tokens == sum(worker.requests.values())
    assert (worker.stage is not None) == (worker.state is WorkerState.DRAINING)
    if worker.stage in {DrainStage.CONFIRMING, DrainStage.SLEEPING}:
        assert not worker.requests, f"{worker.worker_id} goes to sleep with requests"
    for request_id in worker.requests:
        assert requests[request_id].worker_id == worker.worker_id
    assert worker.slots >= 1


def _check_request(handling: OpenRequest, fleet: Fleet) -> None:
    if handling.state is RequestState.WAITING:
        assert not handling.worker_id
        assert not handling.has_begun, "what has begun to answer does not wait again"
        return
    worker = fleet.workers[handling.worker_id]
    assert handling.request.request_id in worker.requests
