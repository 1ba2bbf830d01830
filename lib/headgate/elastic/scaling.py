"""Scaling: who is woken and who is drained, so that there are as many workers as wanted."""

from __future__ import annotations

from headgate.elastic.draining import Draining
from headgate.elastic.fleet import Fleet
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import Pin, Worker, WorkerState

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
