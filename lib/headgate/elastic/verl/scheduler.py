"""The elastic scheduler of seed 002 over a worker group: the same pool, policies and care as in front of engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from headgate.core import Clock, SystemClock
from headgate.core.events import Emit, Event
from headgate.elastic.commands import Abort, Command, Cut, Fail, Send
from headgate.elastic.demand import Policy
from headgate.elastic.engines.attempts import Attempts
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.policies import policy_of
from headgate.elastic.pool import ElasticPool
from headgate.elastic.service.hand import Hand
from headgate.elastic.service.leases import FreeLeases
from headgate.elastic.service.status import PoolStatus
from headgate.elastic.service.steps import Steps
from headgate.elastic.service.tally import Tally
from headgate.elastic.service.tasks import Tasks
from headgate.elastic.service.views import status_of
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.verl.counted import CountedRequests
from headgate.elastic.verl.group_engine import GroupEngine
from headgate.elastic.verl.log_lines import log_event
from headgate.elastic.verl.worker_group import LOGGER, GroupCalls, WorkerGroup
from headgate.elastic.worker import WorkerState

WorkerStatus = WorkerState
"""The seed's name; its states and `failed`."""

VALIDATION_S: Final = 3_600.0
"""Workers that were woken for a validation pass follow the load again after so long, should nobody say so before."""

POOL: Final = "verl"
"""Name of the pool in events and metrics."""

_UNBOUNDED: Final = 1_000_000_000
_log = logging.getLogger(LOGGER)


class ElasticScheduler:
    """Puts workers of a group to sleep and wakes them with the load. Used as the seed's, from one event loop.

    All workers begin awake. The policy is `threshold` unless the settings name another one: whoever wrote the
    thresholds meant them. With `enable_elastic` off it counts, and does nothing else.

    Args:
        config: settings; `queue_timeout`, `max_queue` and `max_losses` do not apply, as the group sends by itself.
        worker_group: see `WorkerGroup`.
        policy: decides instead of the one that the settings name.
        clock: gives the time.
        emit: gets every event.

    Raises:
        InvalidElasticError: the group has fewer workers than always have to be awake, or the settings do not tell how
            many requests a worker takes.
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
            raise InvalidElasticError("requests_per_worker_capacity must be given: a worker group does not tell it")
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
        self._requests = CountedRequests()
        self._tally = Tally()
        self._steps: Steps | None = None
        self._hands: dict[str, Hand] = {}
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
        """Count a request that is under way, or waits for a worker."""
        self._requests.add(request_id)

    def complete_request(self, request_id: str) -> None:
        """Count a request no more; nothing where it is not known."""
        self._requests.complete(request_id)

    def worker_of(self, request_id: str) -> int | None:
        """Return the worker that should have a request now; None while it waits, or is not known.

        A group that sends where this says keeps draining workers free of new requests.
        """
        handling = self._steps.pool.requests.get(request_id) if self._steps else None
        return int(handling.worker_id) if handling is not None and handling.worker_id else None

    @property
    def workers(self) -> Mapping[int, WorkerStatus]:
        """Worker id -> where it stands; all are active while the scheduler does not run."""
        if self._steps is None:
            return dict.fromkeys(range(self.worker_group.world_size), WorkerStatus.ACTIVE)
        return {int(worker_id): worker.state for worker_id, worker in self._steps.pool.workers.items()}

    def get_metrics(self) -> dict[str, float]:
        """Return the seed's metrics, and the number of workers in its other states.

        `load_ratio` is what runs and what waits by what active and starting workers take.
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
        """Return where everything stands, as commands and metrics of elastic pools show it; None while it is off."""
        if self._steps is None:
            return None
        pool, now = self._steps.pool, self._clock.monotonic()
        self._tally.arrived, self._tally.served = pool.demand(now).arrived, pool.served
        return status_of(
            pool,
            self._tally,
            now,
            name=POOL,
            policy=pool.config.policy if self._policy is None else type(self._policy).__name__,
            is_open=True,
            models=(),
            kinds=dict.fromkeys(pool.workers, GroupEngine.kind),
        )

    async def wake_up_all_workers(self, for_s: float = VALIDATION_S) -> None:
        """Wake all workers, as before a validation pass, and return when those that can are awake.

        None is put to sleep for so long, or until `resume_elastic_scheduling`.
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
            async with Tasks() as tasks:
                self._steps = self._begin(tasks)
                begun.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: told here, workers stay as they are
            if begun.done():
                _log.exception("Error in monitoring loop: %s", error)
            else:
                begun.set_exception(error)
        finally:
            self._requests.end()
            self._steps = None

    def _begin(self, tasks: Tasks) -> Steps:
        config = _settings(self.config)
        calls = GroupCalls(self.worker_group, config, self._requests.counted)
        attempts = Attempts(config.engine_attempts, self._clock)
        engines = [GroupEngine(number, calls, attempts) for number in range(self.worker_group.world_size)]
        self._hands = {engine.name: Hand(engine, FreeLeases(), config, tasks) for engine in engines}
        pool = ElasticPool(
            config,
            dict.fromkeys(self._hands, self._slots),
            self._policy or policy_of(config),
            self._clock.monotonic(),
            awake=tuple(self._hands),
            name=POOL,
            has_others=False,  # whatever the workers count is in `CountedRequests`, on whichever of them it runs
        )
        self._tally = Tally()
        steps = Steps(POOL, pool, self._clock, tasks, self._hear, self._carry_out)
        for hand in self._hands.values():
            hand.report_to(steps)
        self._requests.begin(steps, tasks)
        return steps

    def _hear(self, event: Event) -> None:
        log_event(event)
        self._tally.take(event)
        if self._emit is not None:
            self._emit(event)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Send | Abort | Cut | Fail):
            self._requests.carry_out(command)
        else:
            self._hands[command.worker_id].carry_out(command)


def _settings(config: ElasticConfig) -> ElasticConfig:
    """Return settings under which no request is refused, fails or waits too long: the group has it all the same."""
    changed: dict[str, object] = {"queue_timeout": None, "max_queue": _UNBOUNDED, "max_losses": _UNBOUNDED}
    if "policy" not in config.model_fields_set:
        changed["policy"] = "threshold"
    return config.model_copy(update=changed)
