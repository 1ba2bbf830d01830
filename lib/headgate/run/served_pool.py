"""The engines of one model that a run serves: an elastic pool that is opened, watched, and reopened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.core import Serving
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.core.events import Event, PoolNotOpened, WorkerChanged
from headgate.core.status import EngineStatus
from headgate.core.tasks import beside, first_ended
from headgate.elastic import ElasticConfig, EngineError, WorkerState
from headgate.elastic.policies import ForDue, policy_of
from headgate.elastic.service import ElasticService, EnginesAtHand, WorkerView

if TYPE_CHECKING:
    from headgate.run.served import ServedModels

HOPELESS: Final = 5
"""Consecutive failures, of starts or of engines before their first answer, after which waiting for the next start is
pointless; an error that no retry can cure counts as this many."""

RETRY_S: Final = 15.0
_LONGEST_RETRIES: Final = 20
"""The pause before failed engines are retried doubles with each failure, up to this many times `RETRY_S`."""

_FETCH_S: Final = 3_600.0
"""Extra start time for weights that have to be downloaded."""

_LINE_S: Final = 1.0
"""Interval at which a pool with nothing due, or whose turn is over, checks whether others wait for its place."""

TURN_S: Final = 60.0
TURN_BY_START: Final = 10.0
"""Length of a turn: `TURN_S`, or this many times the start's if longer: turns cost at most 10 % of a GPU's time."""

_LAST_TURNS: Final = 10.0
"""Samples in progress when a turn ends have this many more turns to finish; then they are put back."""

_UP: Final = (WorkerState.ACTIVE, WorkerState.DRAINING)


class EngineHosts(Protocol):
    """Where engines are started: this machine (`headgate.elastic.service.Machine`), or a cluster."""

    def engines(self, name: str, serving: Serving, config: ElasticConfig) -> AbstractAsyncContextManager[EnginesAtHand]:
        """Return a context with the engines of a pool, none of them started.

        Raises:
            HeadgateError: if no place can hold them.
        """


def pool_config(serving: Serving, request_s: float, retry_s: float) -> ElasticConfig:
    """Return the settings of a pool with this time limit for requests and this first pause of failed engines."""
    launch, idle_s = serving.launch, serving.idle_s
    return ElasticConfig(
        min_workers=serving.least,
        max_workers=serving.most,
        requests_per_worker_capacity=launch.slots,
        policy="target",
        stable_window=idle_s,
        panic_window=min(6.0, idle_s),
        min_stable_period=min(10.0, idle_s),
        monitoring_interval=min(2.0, idle_s),
        confirm_interval=min(0.25, idle_s),
        start_timeout=launch.start_s + (_FETCH_S if "://" in launch.weights else 5.0),
        failed_retry=retry_s,
        queue_timeout=None,
        request_timeout=request_s,
    )


class ServedPool:
    """One model's engines. Lives as long as its `run`; owned by `ServedModels`.

    Attributes:
        service: the running pool; None while it is not open.
        is_awake: whether an awake engine takes requests.
        is_ready: likewise, and whether further samples may start: if others wait for its place, until its turn is over.
        failures: consecutive starts that failed, or led to no answer.
    """

    def __init__(self, key: str, serving: Serving, models: ServedModels) -> None:
        self.key = key
        self.serving = serving
        self.service: ElasticService | None = None
        self.is_awake = self.is_ready = False
        self.failures = 0
        self._models = models
        self._fault = ""
        self._was_open = False
        self._retry_at = 0.0
        self._ahead: Callable[[], Coroutine[Any, Any, str]] | None = None
        self._others_wait, self._is_over = "", False
        self._turn_s, self._turn_ends = TURN_S, 0.0
        self._has_left = asyncio.Event()
        self._patience: set[asyncio.Timeout] = set()

    async def run(self) -> None:
        """Keep the pool open until `leave`; if it cannot be opened, retry with growing pauses."""
        times = 0
        while not self._has_left.is_set():
            try:
                await self._open()
            except (HeadgateError, OSError) as error:
                times = times if self.failures else 0  # it was open since the last failure
                retry_s = self._models.retry_s * min(2.0**times, _LONGEST_RETRIES)
                times += 1
                # What breaks a rule will break it again, unless it was valid before: nodes join a new head one by one.
                is_final = isinstance(error, InvalidInputError) and not self._was_open
                self.failures = max(times, HOPELESS if is_final else 0)
                self._fault = error.message if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
                self._retry_at = self._models.clock.monotonic() + retry_s
                self._models.emit(PoolNotOpened(self.key, self._fault, getattr(error, "next_step", ""), retry_s))
                self._look()
                async with first_ended(self._has_left.wait(), self._models.clock.sleep(retry_s)):
                    pass

    def look(self) -> None:
        """Wake an engine at once if samples are due and none is awake."""
        if self.service is not None and not self.is_ready and self._models.due(self.key):
            self.service.reconsider()

    def leave(self) -> None:
        """End the engines and their requests."""
        self._has_left.set()
        self.is_awake = self.is_ready = False
        self._lose_patience()

    @asynccontextmanager
    async def patience(self) -> AsyncIterator[asyncio.Timeout]:
        """Yield a time limit that expires as soon as no engine is left to answer."""
        async with asyncio.timeout(None) as limit:
            self._patience.add(limit)
            try:
                yield limit
            finally:
                self._patience.discard(limit)

    def status(self) -> EngineStatus:
        """Return the state of the engines: that of the one closest to answering."""
        if self.service is None:
            state = "failed" if self._fault else "starting"
            retry_s = max(0.0, self._retry_at - self._models.clock.monotonic()) if self._fault else None
            return EngineStatus(state, 0, self.serving.most, self._fault, retry_s)
        workers = self.service.status().workers
        awake = sum(worker.state is WorkerState.ACTIVE for worker in workers)
        state, worker = max(((_state(each), each) for each in workers), key=lambda pair: _STATES.index(pair[0]))
        has_failed = state == "failed"
        reason = worker.last_error if has_failed or (worker.failures and state != "awake") else ""
        return EngineStatus(state, awake, self.serving.most, reason, worker.retry_s if has_failed else None)

    async def why(self) -> str:
        """Return why no engine answers, in a sentence."""
        status = self.status()
        after = f"; the last start failed: {status.reason}" if status.reason else ""
        match status.state:
            case "in line":
                ahead = "" if self._ahead is None else await self._ahead()
                return f"its engine stands in line{f' behind {ahead}' if ahead else ''}{after}"
            case "failed":
                retry = "" if status.retry_s is None else f"; it is tried again in {status.retry_s:.0f} s"
                return f"its engine has failed: {status.reason}{retry}"
            case "asleep":
                return f"its engine sleeps{after}"
            case "leaving":
                return "its engine has to leave its place"
            case "awake" if self._is_over:
                return "the turn of its engine is over, which leaves once the samples in progress have ended"
            case state:
                return f"its engine is {state}{after}"

    async def _open(self) -> None:
        config = pool_config(self.serving, self._models.request_s, self._models.retry_s)
        policy = ForDue(policy_of(config), self._wanted, lambda: self._others_wait)
        async with (
            self._models.hosts.engines(self.key, self.serving, config) as at_hand,
            ElasticService(
                self.key,
                config,
                at_hand.engines,
                leases=at_hand.leases,
                policy=policy,
                clock=self._models.clock,
                emit=self._heard,
            ) as service,
            beside(self._look_at_line(at_hand, service)),
        ):
            self.service, self._ahead, self._fault, self.failures = service, at_hand.ahead, "", 0
            self._was_open = True
            try:
                self._look()
                async with first_ended(self._has_left.wait(), at_hand.gone):
                    await service.stop(drain_s=0)
            finally:
                self.service, self.is_awake, self.is_ready = None, False, False
                self._lose_patience()
        if not self._has_left.is_set():
            raise EngineError(at_hand.gone.result(), next_step="Its engines are placed again.")

    async def _look_at_line(self, at_hand: EnginesAtHand, service: ElasticService) -> None:
        """Let engines leave if others wait for their place and nothing is due, or their turn is over."""
        while True:
            await self._models.clock.sleep(_LINE_S)
            is_idle, waits = not self._models.due(self.key), False
            has_had_turn = self._models.clock.monotonic() >= self._turn_ends and not self.serving.least
            with suppress(HeadgateError):  # the ledger is unreachable, so the line is unknown
                waits = self._is_up() and (is_idle or has_had_turn) and await at_hand.others_wait()
            why = "nothing is due" if is_idle else "its turn is over"
            self._others_wait = f"{why}, and others stand in line" if waits else ""
            was_over, self._is_over = self._is_over, waits and has_had_turn
            if self._is_over is not was_over:
                self._look()
            if waits:
                with suppress(HeadgateError):  # the service is just ending
                    service.reconsider()

    def _wanted(self) -> int:
        """Return for how many samples engines are wanted; after their turn, for those in progress, for a while."""
        if not self._is_over:
            return self._models.due(self.key)
        is_patient = self._models.clock.monotonic() < self._turn_ends + _LAST_TURNS * self._turn_s
        return self._models.in_progress(self.key) if is_patient and self.is_awake else 0

    def _heard(self, event: Event) -> None:
        self._models.emit(event)
        if isinstance(event, WorkerChanged):
            if event.after == WorkerState.ACTIVE:
                self._turn_s = max(TURN_S, TURN_BY_START * event.took_s)
                self._turn_ends = self._models.clock.monotonic() + self._turn_s
            # The service reports a change while it makes it, so it is looked at afterwards.
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Apply the present state of the engines."""
        workers = () if self.service is None else self.service.status().workers
        if not self._is_up():
            self._others_wait, self._is_over = "", False
            self._lose_patience()
        self.is_awake = any(worker.state is WorkerState.ACTIVE for worker in workers)
        self.is_ready = self.is_awake and not self._is_over
        if self.service is not None:
            self.failures = max((worker.failures for worker in workers), default=0)
        self._models.looked_at(self)
        if workers and all(worker.state is WorkerState.INACTIVE for worker in workers):
            self.look()

    def _is_up(self) -> bool:
        """Return whether an engine holds a place: it is awake or about to leave."""
        return self.service is not None and any(worker.state in _UP for worker in self.service.status().workers)

    def _lose_patience(self) -> None:
        for limit in self._patience:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())


_STATES: Final = ("failed", "asleep", "leaving", "in line", "starting", "awake")


def _state(worker: WorkerView) -> str:
    match worker.state:
        case WorkerState.ACTIVE:
            return "awake"
        case WorkerState.STARTING:
            return "starting" if worker.is_leased else "in line"
        case WorkerState.DRAINING:
            return "leaving"
        case WorkerState.FAILED:
            return "failed"
        case _:
            return "asleep"
