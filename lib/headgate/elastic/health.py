"""Health: what readings of the engines say, and what follows from those that are not answered."""

from __future__ import annotations

from typing import Final

from headgate.elastic.draining import Draining
from headgate.elastic.fleet import Fleet
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad, Worker, WorkerState

_UNANSWERED: Final = 3
"""So many readings in a row without an answer: one can be lost on the way, and a long prefill can take two."""

_BREAKS: Final = 5
"""So many requests in a row that broke: an engine may answer its readings and none of its requests."""


class Health:
    """Judges workers by their readings. Owned by one pool."""

    def __init__(self, config: ElasticConfig, fleet: Fleet, draining: Draining) -> None:
        self._config = config
        self._fleet = fleet
        self._draining = draining

    def read(self, worker: Worker, load: EngineLoad, now: float) -> None:
        """Take a reading over."""
        self._fleet.learn(worker, load, now)
        if worker.state is WorkerState.FAILED:
            self._answers_again(worker, load, now)
        elif worker.state is WorkerState.INACTIVE:
            if load.is_asleep:
                self._fleet.rest(worker, now)
            else:
                self._draining.begin(worker, "it was found awake", now)
        elif worker.state is WorkerState.ACTIVE and (load.is_asleep or load.is_half_asleep):
            self._draining.give_up(worker, "it was found asleep", now)
        elif worker.state is WorkerState.DRAINING:
            self._draining.confirmed(worker, now)

    def unanswered(self, worker: Worker, why: str, now: float) -> None:
        """Take note of a reading that was not answered."""
        worker.is_reading = False
        worker.unanswered += 1
        worker.last_error = why
        if worker.state is WorkerState.FAILED:
            self._fleet.try_later(worker, now)
        elif worker.unanswered >= _UNANSWERED:
            self._draining.give_up(worker, f"it did not answer {_UNANSWERED} readings, the last: {why}", now)
        else:
            self._fleet.look_at(worker, now + self._config.confirm_interval)

    def broke(self, worker: Worker, why: str, now: float) -> None:
        """Take note that a request broke: nothing more is sent there before a reading is answered."""
        if worker.state not in {WorkerState.ACTIVE, WorkerState.DRAINING}:
            return
        worker.breaks += 1
        worker.last_error = why
        if worker.breaks >= _BREAKS:
            self._draining.give_up(worker, f"{worker.breaks} requests in a row broke, the last: {why}", now)
        else:
            worker.is_suspect = True
            self._fleet.note_room(worker)
            self._fleet.read(worker)

    def due(self, worker: Worker, now: float) -> None:
        """Look at a worker whose time has come."""
        if worker.state is WorkerState.DRAINING:
            self._draining.due(worker, now)
        elif worker.state is WorkerState.STARTING:
            self._draining.give_up(worker, f"it did not start in {self._config.start_timeout:g} s", now)
        else:
            self._fleet.read(worker)
            if worker.state is WorkerState.ACTIVE:
                self._fleet.look_at(worker, now + self._config.monitoring_interval)

    def _answers_again(self, worker: Worker, load: EngineLoad, now: float) -> None:
        if load.is_asleep:
            self._fleet.asleep(worker, "it answers again, asleep", now)
        else:
            self._draining.begin(worker, "it answers again", now)
