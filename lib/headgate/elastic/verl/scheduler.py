"""verl's elastic scheduler for a worker group, built on the same pool and policies as an elastic pool of engines."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Final

from headgate.core import Clock, SystemClock, events
from headgate.core.events import Emit, Event
from headgate.elastic.demand import Policy
from headgate.elastic.engines.calls import Attempts
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.outbox import Abort, Command, Cut, Fail, LetGo, Read, Send, Sleep, Wake
from headgate.elastic.policies import policy_of
from headgate.elastic.pool import ElasticPool
from headgate.elastic.queue import ElasticRequest, RequestState
from headgate.elastic.service.status import PoolStatus, ServiceCounts, status_of
from headgate.elastic.service.steps import Steps
from headgate.elastic.service.supervisor import FreeLeases, WorkerSupervisor
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.verl.worker_group import LOGGER, GroupCalls, GroupEngine, WorkerGroup
from headgate.elastic.worker import WorkerState

WorkerStatus = WorkerState
"""verl's name; has verl's states and `failed`."""

VALIDATION_S: Final = 3_600.0
"""After this time workers that were woken for a validation pass follow the load again, unless told to before."""

POOL: Final = "verl"
"""Name of the pool in events and metrics."""

_UNBOUNDED: Final = 1_000_000_000
_log = logging.getLogger(LOGGER)


Act = Callable[[ElasticPool, float], object]
"""A call of the pool."""


class CountedRequests:
    """The requests known to be in flight: those that were added, and further ones if the workers report more.

    Owned by one scheduler. A request that only workers report gets a generated name, and ends when they report fewer.
    It is not known which one ended, so the oldest is taken; the mean time of a request is still correct.

    Args:
        tell: calls the pool; does nothing while there is none.
    """

    def __init__(self, tell: Callable[[Act], None]) -> None:
        self.added: dict[str, None] = {}
        self._surplus: dict[str, None] = {}
        self._counted = 0
        self._numbers = itertools.count(1)
        self._tell = tell

    def begin(self) -> None:
        """Submit the requests to the pool that were added before it started."""
        self._tell(lambda pool, now: [pool.submit(ElasticRequest(request_id), now) for request_id in self.added])

    def end(self) -> None:
        """Continue counting without a pool."""
        self._surplus.clear()

    def add(self, request_id: str) -> None:
        """Count a request; the same id again is the same request."""
        self.added[request_id] = None
        self._tell(lambda pool, now: pool.submit(ElasticRequest(request_id), now))

    def complete(self, request_id: str) -> None:
        """Stop counting a request; legal twice."""
        if request_id in self.added:
            del self.added[request_id]
            self._tell(lambda pool, now: _end(pool, request_id, now))

    def counted(self, total: int) -> None:
        """Update how many requests all workers together report as running."""
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

        self._tell(act)

    def drop(self, request_id: str) -> None:
        """Stop counting a request that the pool has given up."""
        self.added.pop(request_id, None)
        self._surplus.pop(request_id, None)


def _end(pool: ElasticPool, request_id: str, now: float) -> None:
    handling = pool.requests.get(request_id)
    if handling is None:
        return
    if handling.state is RequestState.WAITING:
        pool.withdraw(request_id, now)
    else:
        pool.ended(request_id, handling.epoch, now)


class ElasticScheduler:
    """Puts workers of a group to sleep and wakes them with the load. Has verl's API; use it from one event loop.

    All workers begin awake. The policy is `threshold` unless the settings name another one, as configurations for verl
    set thresholds. With `enable_elastic` off it only counts.

    Args:
        config: settings; `queue_timeout`, `max_queue` and `max_losses` do not apply, as the group sends its requests.
        worker_group: see `WorkerGroup`.
        policy: used instead of the one named in the settings.
        clock: gives the time.
        emit: gets every event.

    Raises:
        InvalidElasticError: the group has fewer workers than `min_workers`, or the settings do not say how many
            requests a worker takes.
    """

    def __init__(
        self,
        config: ElasticConfig,
        worker_group: WorkerGroup,
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
    ) -> None:
        if config.requests_per_worker_capacity is None:
            raise InvalidElasticError("requests_per_worker_capacity must be given: a worker group does not report it")
        if worker_group.world_size < config.min_workers:
            raise InvalidElasticError(
                f"min_workers must be <= world_size (got {config.min_workers} > {worker_group.world_size})"
            )
        self.config = config
        self.worker_group = worker_group
        self._slots = config.requests_per_worker_capacity
        self._clock = clock or SystemClock()
        self._emit = emit
        self._policy = policy
        self._requests = CountedRequests(self._tell)
        self._counts = ServiceCounts()
        self._steps: Steps | None = None
        self._supervisors: dict[str, WorkerSupervisor] = {}
        self._task: asyncio.Task[None] | None = None
        _log.info("Initialized elastic scheduler with %d workers", worker_group.world_size)

    async def start(self) -> None:
        """Begin to follow the load; legal twice."""
        if not self.config.enable_elastic or (self._task is not None and not self._task.done()):
            return
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(begun), name="elastic scheduler")
        await begun
        _log.info("Started elastic scheduler")

    async def stop(self) -> None:
        """End; workers stay as they are. Legal twice."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        _log.info("Stopped elastic scheduler")

    def add_request(self, request_id: str) -> None:
        """Count a request that is running or waits for a worker."""
        self._requests.add(request_id)

    def complete_request(self, request_id: str) -> None:
        """Stop counting a request; does nothing if it is not known."""
        self._requests.complete(request_id)

    def worker_of(self, request_id: str) -> int | None:
        """Return the worker that should have a request now; None while it waits, or if it is not known.

        A group that sends requests to this worker keeps draining workers free of new ones.
        """
        handling = self._steps.pool.requests.get(request_id) if self._steps else None
        return int(handling.worker_id) if handling is not None and handling.worker_id else None

    @property
    def workers(self) -> Mapping[int, WorkerStatus]:
        """Worker id -> its state; all are active while the scheduler does not run."""
        if self._steps is None:
            return dict.fromkeys(range(self.worker_group.world_size), WorkerStatus.ACTIVE)
        return {int(worker_id): worker.state for worker_id, worker in self._steps.pool.workers.items()}

    def get_metrics(self) -> dict[str, float]:
        """Return verl's metrics, and the number of workers in its other states.

        `load_ratio` is running plus waiting requests divided by the capacity of active and starting workers.
        """
        states = list(self.workers.values())
        capacity = self._slots * states.count(WorkerStatus.ACTIVE)
        ready = capacity + self._slots * states.count(WorkerStatus.STARTING)
        waiting = max(0, len(self._requests.added) - capacity)
        running = len(self._requests.added) - waiting
        if self._steps is not None:
            demand = self._steps.pool.demand(self._clock.monotonic())
            running, waiting = demand.running, demand.waiting
        return {
            "active_workers": states.count(WorkerStatus.ACTIVE),
            "draining_workers": states.count(WorkerStatus.DRAINING),
            "total_workers": len(states),
            "active_requests": running,
            "pending_requests": waiting,
            "load_ratio": (running + waiting) / max(ready, 1),
            "total_capacity": capacity,
            "inactive_workers": states.count(WorkerStatus.INACTIVE),
            "starting_workers": states.count(WorkerStatus.STARTING),
            "failed_workers": states.count(WorkerStatus.FAILED),
        }

    def status(self) -> PoolStatus | None:
        """Return the status in the form of elastic pools, for their commands and metrics; None while it is off."""
        if self._steps is None:
            return None
        pool, now = self._steps.pool, self._clock.monotonic()
        self._counts.counts.arrived, self._counts.counts.served = pool.demand(now).arrived, pool.served
        return status_of(
            pool,
            self._counts,
            now,
            name=POOL,
            policy=pool.config.policy if self._policy is None else type(self._policy).__name__,
            is_open=True,
            models=(),
            kinds=dict.fromkeys(pool.workers, GroupEngine.kind),
        )

    async def wake_up_all_workers(self, for_s: float = VALIDATION_S) -> None:
        """Wake all workers, as for a validation pass, and return once those that can be are awake.

        None is put to sleep for `for_s` seconds, or until `resume_elastic_scheduling`.
        """
        steps = self._steps
        if steps is None:
            return
        steps.do(lambda pool, now: pool.wake_all(now, for_s=for_s))
        try:
            async with asyncio.timeout(self.config.start_timeout):
                while steps.is_open and not self._are_awake(steps.pool):
                    await steps.changed()
        except TimeoutError:
            _log.warning("Not all workers are awake after %g s", self.config.start_timeout)

    async def resume_elastic_scheduling(self) -> None:
        """Follow the load again."""
        if self._steps is not None:
            self._steps.do(lambda pool, now: pool.resume(now))

    def _are_awake(self, pool: ElasticPool) -> bool:
        demand = pool.demand(self._clock.monotonic())
        return demand.active >= demand.highest

    async def _run(self, begun: asyncio.Future[None]) -> None:
        try:
            steps = self._steps = self._made()
            async with steps:
                self._requests.begin()
                begun.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - nothing awaits this task: logged here; workers stay as they are
            if begun.done():
                _log.exception("Error in monitoring loop: %s", error)
            else:
                begun.set_exception(error)
        finally:
            self._requests.end()
            self._steps = None

    def _made(self) -> Steps:
        config = _settings(self.config)
        calls = GroupCalls(self.worker_group, config, self._requests.counted)
        attempts = Attempts(config.engine_attempts)
        engines = [GroupEngine(number, calls, attempts) for number in range(self.worker_group.world_size)]
        pool = ElasticPool(
            config,
            dict.fromkeys((engine.name for engine in engines), self._slots),
            self._policy or policy_of(config),
            self._clock.monotonic(),
            awake=[engine.name for engine in engines],
            name=POOL,
            has_others=False,  # `CountedRequests` has all that the workers report, on whichever of them it runs
        )
        self._counts = ServiceCounts()
        steps = Steps(POOL, pool, self._clock, self._hear, self._carry_out)
        self._supervisors = {engine.name: WorkerSupervisor(engine, FreeLeases(), config, steps) for engine in engines}
        return steps

    def _tell(self, act: Act) -> None:
        if self._steps is not None and self._steps.is_open:
            self._steps.do(act)

    def _hear(self, event: Event) -> None:
        log_event(event)
        self._counts.take(event)
        if self._emit is not None:
            self._emit(event)

    def _carry_out(self, command: Command) -> None:
        match command:  # the group itself sends the requests, so little is left to do for them here
            case Send():
                _log.debug("Redistributed 1 requests")
            case Abort():
                assert self._steps is not None, "commands come from a running pool"
                self._steps.start(self._hand_over(command), f"hand over {command.request_id}")
            case Cut():
                pass
            case Fail():
                _log.warning("Request %s is no longer counted: %s", command.request_id, command.says)
                self._requests.drop(command.request_id)
            case Read() | Sleep() | Wake() | LetGo():
                self._supervisors[command.worker_id].carry_out(command)

    async def _hand_over(self, command: Abort) -> None:
        """Assign a draining worker's request to another worker, in the count only."""
        why = f"worker {command.worker_id} drains"
        self._tell(lambda pool, now: pool.broke(command.request_id, command.epoch, why, now, was_aborted=True))


def _settings(config: ElasticConfig) -> ElasticConfig:
    """Return settings under which no request is refused, fails or times out, as the group has it in any case."""
    changed: dict[str, object] = {"queue_timeout": None, "max_queue": _UNBOUNDED, "max_losses": _UNBOUNDED}
    if "policy" not in config.model_fields_set:
        changed["policy"] = "threshold"
    return config.model_copy(update=changed)


def log_event(event: Event) -> None:
    """Log an event in the words of verl's scheduler."""
    match event:
        case events.WorkerChanged(after=WorkerState.DRAINING):
            _log.info("Scaling down: draining worker %s", event.worker)
        case events.WorkerChanged(after=WorkerState.STARTING):
            _log.info("Scaling up: activating worker %s", event.worker)
        case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.INACTIVE):
            _log.info("Successfully drained and flushed worker %s", event.worker)
        case events.WorkerChanged(before=WorkerState.STARTING, after=WorkerState.FAILED):
            _log.error("Failed to scale up worker %s: %s", event.worker, event.reason)
        case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.FAILED):
            _log.error("Failed to flush cache for worker %s: %s", event.worker, event.reason)
        case events.WorkerChanged(after=WorkerState.FAILED):
            _log.error("Worker %s failed: %s", event.worker, event.reason)
        case _:
            pass
