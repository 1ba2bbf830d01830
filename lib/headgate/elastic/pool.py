"""The elastic pool: which worker gets which request, and which workers are awake. Reports in, commands out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType

from headgate.core import ReleaseOutcome, events
from headgate.core.events import Event
from headgate.elastic.demand import Demand, Desired, Meter, Policy
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.fleet import MANY_FAILURES, Fleet
from headgate.elastic.outbox import Command, Outbox
from headgate.elastic.queue import Accepted, ElasticRequest, OpenRequest, Refused
from headgate.elastic.requests import Requests
from headgate.elastic.scaling import Drain, Health, Scaling, validate
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad, Pin, Worker, WorkerState


class ElasticPool:
    """A queue of requests in front of workers. Pure: `now` is an argument, nothing is awaited.

    Owned by one service that calls it from one thread. After any call `decide` returns the commands to carry out;
    `next_at` says when to call it again if nothing happens before. Reports carry the epoch of the command that they
    answer; reports of another epoch change nothing.

    Args:
        config: settings.
        workers: worker id -> requests that it takes at once, until its engine reports less.
        policy: decides how many workers should be awake.
        now: monotonic seconds.
        awake: the workers that are awake now; the others are asleep.
        name: name of the pool, in events.
        has_others: whether requests that an engine reports beyond those it was given count as foreign load; False if a
            request may run on another worker than the one it was given to.

    Raises:
        InvalidElasticError: there are fewer workers than `min_workers`.
    """

    def __init__(
        self,
        config: ElasticConfig,
        workers: Mapping[str, int],
        policy: Policy,
        now: float,
        *,
        awake: Collection[str] = (),
        name: str = "pool",
        has_others: bool = True,
    ) -> None:
        if len(workers) < config.min_workers:
            raise InvalidElasticError(
                f"min_workers must be <= the workers of the pool (got {config.min_workers} > {len(workers)})"
            )
        self.config = config
        self._policy = policy
        self._outbox = Outbox(name)
        self._meter = Meter(now)
        self._fleet = Fleet(config, self._meter, self._outbox, has_others=has_others)
        for worker_id, slots in workers.items():
            worker = Worker(worker_id, slots, since=now)
            self._fleet.enter(worker, is_awake=worker_id in awake)
            self._fleet.read(worker)
            self._fleet.look_at(worker, now + config.monitoring_interval)
        self._requests = Requests(config, self._fleet, self._meter, self._outbox)
        self._drain = Drain(config, self._fleet, self._requests, self._outbox)
        self._health = Health(config, self._fleet, self._drain)
        self._scaling = Scaling(config, self._fleet, self._drain)
        self.desired = Desired(max(self._scaling.lowest, len(self._fleet.active)), "as found at the start")
        """How many workers should be awake, and why."""
        self._scaled_to: int | None = None
        self._all_awake_until = -math.inf
        self._decided_at = -math.inf
        self._joined_then = 0
        self._kept = self.desired.workers

    @property
    def workers(self) -> Mapping[str, Worker]:
        """Worker id -> worker."""
        return MappingProxyType(self._fleet.workers)

    @property
    def requests(self) -> Mapping[str, OpenRequest]:
        """Request id -> request that has not ended."""
        return MappingProxyType(self._requests.all)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._requests.queue)

    @property
    def served(self) -> int:
        """Requests that were answered."""
        return self._meter.served

    def demand(self, now: float) -> Demand:
        """Return demand and capacity as a policy gets them."""
        self._meter.at(now)
        starting = list(self._fleet.in_state(WorkerState.STARTING))
        draining = list(self._fleet.in_state(WorkerState.DRAINING))
        oldest = self._requests.queue.oldest()
        running = sum(len(worker.requests) + worker.foreign for worker in self._fleet.workers.values())
        return Demand(
            worth=self._meter.worth,
            waiting_worth=self._meter.waiting,
            area=self._meter.area,
            peak_worth=self._meter.peak,
            running=running,
            waiting=self.waiting,
            oldest_wait_s=0.0 if oldest is None else now - oldest.waits_since,
            arrived=self._meter.arrived,
            active=len(self._fleet.active),
            starting=len(starting),
            draining=len(draining),
            slots=self._fleet.slots,
            start_s=max([self._meter.start_s, *(now - worker.since for worker in starting if worker.is_leased)]),
            service_s=self._meter.service_s,
            lowest=self._scaling.lowest,
            highest=self._scaling.highest,
            running_draining=sum(len(worker.requests) for worker in draining),
            foreign=sum(worker.foreign for worker in self._fleet.workers.values()),
            has_started=self._meter.has_started,
        )

    # Requests

    def submit(self, request: ElasticRequest, now: float) -> Accepted | Refused:
        """Accept a request, or say why not."""
        return self._requests.submit(request, now)

    def begun(self, request_id: str, epoch: int) -> ReleaseOutcome:
        """Ask whether a first part of the answer may go to the client; only `released` allows it."""
        return self._requests.begun(request_id, epoch)

    def ended(self, request_id: str, epoch: int, now: float) -> ReleaseOutcome:
        """Report that a request was answered."""
        worker_id = self._worker_of(request_id)
        outcome = self._requests.ended(request_id, epoch, now)
        self._after(worker_id, outcome, now)
        return outcome

    def broke(self, request_id: str, epoch: int, why: str, now: float, *, was_aborted: bool = False) -> ReleaseOutcome:
        """Report that a worker did not answer a request, by its own fault or because the request was aborted."""
        worker_id = self._worker_of(request_id)
        outcome = self._requests.broke(request_id, epoch, why, now, was_aborted=was_aborted)
        if outcome is ReleaseOutcome.RELEASED and not was_aborted:
            self._health.broke(self._fleet.workers[worker_id], why, now)
        self._after(worker_id, outcome, now)
        return outcome

    def withdraw(self, request_id: str, now: float) -> bool:
        """Withdraw a request whose client is gone; return whether it was open."""
        worker_id = self._worker_of(request_id)
        was_there = self._requests.withdraw(request_id, now)
        if was_there and worker_id:
            self._drain.go_on(self._fleet.workers[worker_id], now)
        return was_there

    # Workers

    def read(self, worker_id: str, epoch: int, load: EngineLoad, now: float) -> None:
        """Report a reading."""
        if (worker := self._fleet.current(worker_id, epoch)) is not None:
            self._health.read(worker, load, now)

    def unanswered(self, worker_id: str, epoch: int, why: str, now: float) -> None:
        """Report that a reading was not answered."""
        if (worker := self._fleet.current(worker_id, epoch)) is not None:
            self._health.unanswered(worker, why, now)

    def alive(self, worker_id: str) -> None:
        """Report that a worker answers requests, which cancels out unanswered readings."""
        if (worker := self._fleet.workers.get(worker_id)) is not None:
            worker.unanswered = 0

    def leased(self, worker_id: str, epoch: int, now: float) -> None:
        """Report that a starting worker has its lease."""
        worker = self._fleet.current(worker_id, epoch)
        if worker is not None and worker.state is WorkerState.STARTING:
            self._fleet.leased(worker, now)

    def slept(self, worker_id: str, epoch: int, now: float) -> None:
        """Report that a worker is asleep."""
        worker = self._fleet.current(worker_id, epoch)
        if worker is not None and worker.state is WorkerState.DRAINING:
            self._requests.affinity.forget(worker_id)
            self._fleet.asleep(worker, "its memory is released", now)

    def woken(self, worker_id: str, epoch: int, now: float) -> None:
        """Report that a worker is awake and answers."""
        worker = self._fleet.current(worker_id, epoch)
        if worker is None or worker.state is not WorkerState.STARTING:
            return
        self._meter.started(now - worker.since)
        is_lost = worker.is_lease_lost
        worker.is_leased = True
        self._fleet.activate(worker, "it has started", now)
        if is_lost:
            self._drain.hurry(worker, "its lease is wanted by others", now, within_s=0.0)

    def stuck(self, worker_id: str, epoch: int, why: str, now: float, *, is_final: bool = False) -> None:
        """Report that a worker could not be put to sleep or woken; with `is_final` a retry is unlikely to help."""
        worker = self._fleet.current(worker_id, epoch)
        if worker is not None and worker.state is not WorkerState.FAILED:
            if is_final:
                worker.failures = max(worker.failures, MANY_FAILURES)
            self._drain.give_up(worker, why, now)

    def lease_lost(self, worker_id: str, now: float, *, within_s: float) -> None:
        """Report that a worker must give its lease back within `within_s` seconds."""
        worker = self._fleet.worker(worker_id)
        if worker.state is WorkerState.STARTING:
            worker.is_lease_lost = True
        elif worker.state in {WorkerState.ACTIVE, WorkerState.DRAINING}:
            self._drain.hurry(worker, "its lease is wanted by others", now, within_s=within_s)
        self._decided_at = -math.inf

    # The operator

    def pin(self, worker_id: str, pin: Pin | None, now: float) -> None:
        """Keep a worker awake or asleep whatever the load; None returns it to the policy.

        A failed worker is tried at once, as the operator may have repaired it.

        Raises:
            UnknownWorkerError: there is no worker of that name.
        """
        worker = self._fleet.worker(worker_id)
        worker.pin = pin
        if worker.state is WorkerState.FAILED:
            self._fleet.read(worker)
        self._steered(f"{worker_id} is kept {pin}" if pin else f"{worker_id} follows the load")
        self._follow_operator(now)
        self._decided_at = -math.inf

    def scale(self, workers: int | None, now: float) -> None:
        """Keep this many workers awake whatever the load; None returns the decision to the policy.

        Raises:
            InvalidElasticError: it is not between `min_workers` and `max_workers`.
        """
        low, high = self.config.min_workers, self.config.max_workers
        if workers is not None and not low <= workers <= high:
            raise InvalidElasticError(
                f"workers must be between min_workers {low} and max_workers {high} (got {workers})"
            )
        self._scaled_to = workers
        self._kept = self._kept if workers is None else workers
        self._steered("the number follows the load" if workers is None else f"the number is {workers}")
        self._decide_scale(now)

    def wake_all(self, now: float, *, for_s: float) -> None:
        """Keep all workers awake for `for_s` seconds, as for a validation pass; it ends by itself, or by `resume`."""
        self._all_awake_until = now + for_s
        self._steered(f"all workers are awake for {for_s:g} s")
        self._decide_scale(now)

    def resume(self, now: float) -> None:
        """Follow the load again: ends `wake_all` and `scale`; pins stay."""
        self._all_awake_until = -math.inf
        self._scaled_to = None
        self._steered("the number follows the load")
        self._decide_scale(now)

    def reconsider(self, now: float) -> None:
        """Decide on the number of workers now: an input of the policy has changed without a request."""
        self._decide_scale(now)

    def close(self, now: float) -> None:
        """Refuse new requests; open ones run to their end."""
        del now
        self._requests.closed_because = "the pool is being stopped"

    # Deciding

    def decide(self, now: float) -> list[Command]:
        """Return the commands to carry out, in order."""
        for worker_id in self._fleet.agenda.pop_due(now):
            self._health.due(self._fleet.workers[worker_id], now)
        self._requests.expire(now)
        self._requests.send(now)
        if self._scale_at() <= now:
            self._decide_scale(now)
            self._requests.send(now)
        return self._outbox.take_commands()

    def next_at(self) -> float | None:
        """Return when `decide` must be called if nothing happens before; None for never."""
        looked_at = self._fleet.agenda.next_at()
        at = min(math.inf if looked_at is None else looked_at, self._requests.expires_at(), self._scale_at())
        return None if at == math.inf else at

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        return self._outbox.take_events()

    def validate(self) -> None:
        """Assert the invariants."""
        validate(self._fleet, self._requests, self._meter)
        self._policy.validate()

    def _steered(self, what: str) -> None:
        self._outbox.tell(events.PoolSteered(self._outbox.pool, what))

    def _follow_operator(self, now: float) -> None:
        """Apply an operator's pins; a pool that is not elastic keeps the resulting number of workers."""
        awake = self._awake()
        self._scaling.follow_pins(now)
        self._kept += self._awake() - awake

    def _awake(self) -> int:
        return sum(1 for _ in self._fleet.in_state(WorkerState.ACTIVE, WorkerState.STARTING))

    def _worker_of(self, request_id: str) -> str:
        handling = self._requests.all.get(request_id)
        return "" if handling is None else handling.worker_id

    def _after(self, worker_id: str, outcome: ReleaseOutcome, now: float) -> None:
        if outcome is ReleaseOutcome.RELEASED:
            self._drain.go_on(self._fleet.workers[worker_id], now)

    def _scale_at(self) -> float:
        at = self._decided_at + self.config.monitoring_interval
        if self.waiting and self._requests.joined > self._joined_then:
            at = min(at, self._decided_at + self.config.urgent_interval)
        return at

    def _decide_scale(self, now: float) -> None:
        demand = self.demand(now)
        self._scaling.follow_pins(now)
        wanted = self._wanted(demand, now)
        bounded = _bounded(wanted, demand)
        if bounded.workers != self.desired.workers:
            self._outbox.tell(
                events.ScaleDecided(self._outbox.pool, bounded.workers, self.desired.workers, bounded.because)
            )
        self.desired = bounded
        self._scaling.reach(bounded, now)
        self._decided_at = now
        self._joined_then = self._requests.joined
        self._meter.forget_peak()

    def _wanted(self, demand: Demand, now: float) -> Desired:
        advised = self._policy.decide(demand, now)  # always, as it forecasts from the demand that it has seen
        if now < self._all_awake_until:
            return Desired(demand.highest, "an operator keeps all workers awake")
        if self._scaled_to is not None:
            return Desired(self._scaled_to, f"an operator wants {self._scaled_to}")
        if not self.config.enable_elastic:
            return Desired(max(demand.awake, demand.lowest, self._kept), "enable_elastic is off")
        return advised


def _bounded(wanted: Desired, demand: Demand) -> Desired:
    """Return the wanted number limited to what is allowed and possible; the reason says if it was limited."""
    if wanted.workers > demand.highest:
        return Desired(demand.highest, f"{wanted.because}; {wanted.workers} wanted, only {demand.highest} can be awake")
    if wanted.workers < demand.lowest:
        return Desired(demand.lowest, f"{wanted.because}; at least {demand.lowest} stay awake")
    if not wanted.workers and demand.highest and (demand.waiting or demand.running):
        return Desired(1, f"{wanted.because}; one is awake while there are requests")
    return wanted
