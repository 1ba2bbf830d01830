"""Draining: a worker comes to its end without losing a request, or turns back."""

from __future__ import annotations

from typing import Final

from headgate.elastic.fleet import Fleet
from headgate.elastic.handling import Requests
from headgate.elastic.notes import Notes
from headgate.elastic.request import RequestState
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import DrainStage, Worker, WorkerState

_READINGS: Final = 2
"""An engine between two requests looks idle once; twice it is."""


class Draining:
    """Leads workers from `emptying` to `sleeping`. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, requests: Requests, notes: Notes) -> None:
        self._config = config
        self._fleet = fleet
        self._requests = requests
        self._notes = notes

    def begin(self, worker: Worker, reason: str, now: float) -> None:
        """Have a worker take no further request."""
        self._fleet.drain(worker, reason, now)
        self.go_on(worker, now)

    def hurry(self, worker: Worker, reason: str, now: float, *, within_s: float) -> None:
        """Have a worker leave what it stands on within a time: what has not begun moves at once."""
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
        """Take the next step once nothing is left here."""
        if worker.requests or worker.stage not in {DrainStage.EMPTYING, DrainStage.MOVING}:
            return
        worker.stage = DrainStage.CONFIRMING
        worker.idle_readings = 0
        worker.drain_by = now + self._config.drain_timeout
        self._fleet.read(worker)
        self._fleet.look_at(worker, worker.drain_by)

    def confirmed(self, worker: Worker, now: float) -> None:
        """Take the last reading into account; whoever is idle twice is put to sleep."""
        if worker.stage is not DrainStage.CONFIRMING or worker.load is None:
            return
        if not worker.load.is_idle:
            worker.idle_readings = 0
            self._notes.counts_differ(worker, worker.load.running + worker.load.waiting)
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
        """Look at a draining worker whose time has come."""
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
        """Take a worker for failed; what it has goes to others."""
        self._requests.take_from(worker, why, now)
        self._fleet.fail(worker, why, now)

    def _move(self, worker: Worker, now: float) -> None:
        """Have what has not begun to answer let go of; answers that are arriving go on for a while."""
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
            self.give_up(worker, f"it did not let go of {len(left)} requests", now)
            return
        for handling in left:
            self._requests.abort(handling)
        self._patience(worker, now, 0.0)

    def _patience(self, worker: Worker, now: float, at_least_s: float) -> None:
        aborts_s = self._config.engine_timeout * self._config.engine_attempts
        worker.drain_by = now + max(at_least_s, aborts_s)
        self._fleet.look_at(worker, min(worker.drain_by, now + self._config.monitoring_interval))

    def _busy_with_others(self, worker: Worker, now: float) -> None:
        """An engine that works for others is never put to sleep; where it need not go it is used again."""
        if worker.has_to_go:
            worker.drain_by = now + self._config.drain_timeout
            self._fleet.look_at(worker, now)
        else:
            worker.held_until = now + self._config.drain_timeout
            self._fleet.activate(worker, "its engine works for others, and so cannot sleep", now)
