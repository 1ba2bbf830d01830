"""The elastic service: a pool with its engines, its timer and its requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import Final, Self

from headgate.core import Clock, SystemClock, events
from headgate.core.events import Emit, Event, unheard
from headgate.elastic.demand import Policy
from headgate.elastic.engines.engine import Engine, EngineAnswer, Outgoing
from headgate.elastic.engines.records import claim
from headgate.elastic.errors import InvalidElasticError, PoolClosedError, WorkerClaimedError
from headgate.elastic.outbox import Abort, Command, Cut, Fail, Send
from headgate.elastic.policies import policy_of
from headgate.elastic.pool import ElasticPool
from headgate.elastic.queue import ElasticRequest
from headgate.elastic.service.in_flight import InFlight
from headgate.elastic.service.startup import Opening, check_names, open_engines, together
from headgate.elastic.service.status import PoolStatus, ServiceCounts, status_of
from headgate.elastic.service.steps import Steps
from headgate.elastic.service.supervisor import FreeLeases, WorkerLeases, WorkerSupervisor
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import Pin, WorkerState

_log = logging.getLogger("headgate.elastic")

DRAIN_S: Final = 30.0
"""How long requests in flight get to end when a service stops."""


class ElasticService:
    """An elastic pool over engines. Enter it to start it; everything is called in one event loop.

        async with ElasticService("chat", config, engines) as service:
            async with service.request(Outgoing(new_id, "/v1/chat/completions", body)) as answer:
                async for chunk in answer.chunks: ...

    An engine belongs to one pool at a time, on one machine. Engines are left awake or asleep as they are when the
    service ends.
    """

    def __init__(
        self,
        name: str,
        config: ElasticConfig,
        engines: Sequence[Engine],
        *,
        leases: WorkerLeases | None = None,
        policy: Policy | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
    ) -> None:
        """Set up the service; nothing is started or contacted before it is entered.

        Args:
            name: name of the pool, in events, metrics and claims.
            config: settings.
            engines: the workers; closed with the service.
            leases: source of the leases that workers need to be awake; by default they need none.
            policy: decides how many workers are awake; by default the one named in the settings.
            clock: gives the time.
            emit: gets every event.
        """
        check_names(engines)
        self.name = name
        self._config = config
        self._engines = {engine.name: engine for engine in engines}
        self._leases = leases or FreeLeases()
        self._policy = policy or policy_of(config)
        self._policy_name = config.policy if policy is None else type(policy).__name__
        self._clock = clock or SystemClock()
        self._emit = emit or unheard
        self._counts = ServiceCounts()
        self._entered: Steps | None = None
        self._supervisors: Mapping[str, WorkerSupervisor]
        self._in_flight: InFlight
        self._models: tuple[str, ...]  # these three from when it is entered
        self._is_stopping = False
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Check all engines, claim them, and begin to take requests.

        Raises:
            InvalidElasticError: one of the engines is none, cannot sleep, or does not tell what it takes, with what is
                wrong with each; or there are none.
            WorkerClaimedError: an engine belongs to another pool.
        """
        async with AsyncExitStack() as exits:
            for engine in self._engines.values():
                exits.push_async_callback(engine.close)
            self._claim(exits)
            opening = await open_engines(list(self._engines.values()), self._config)
            self._take_up(opening)
            exits.push_async_callback(self._give_back_leases)  # after the tasks have ended, which use them
            await exits.enter_async_context(self._steps)
            await self._lease(opening.awake)
            self._steps.decide()
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End the service if `stop` has not: requests in flight fail, and engines stay as they are."""
        self._end()
        return await self._exits.__aexit__(kind, error, traceback)

    @property
    def _steps(self) -> Steps:
        """The steps of the running pool; raises PoolClosedError if the service was not entered yet."""
        if self._entered is None:
            raise PoolClosedError(
                f"The elastic pool {self.name} is not open yet",
                next_step="Use it within `async with ElasticService(…)`.",
            )
        return self._entered

    def request(
        self, outgoing: Outgoing, *, tokens: int = 1, prefixes: tuple[int, ...] = (), group: str = ""
    ) -> AbstractAsyncContextManager[EngineAnswer]:
        """Wait for a worker, send it a request, and yield the answer; if the worker fails, another one takes over.

        When the context is entered, an answer that is not a stream of events is complete, and the first part of a
        stream has arrived. Leaving the context early, or being cancelled, withdraws the request and ends it in the
        engine.

        Args:
            outgoing: the request for the engine; its `request_id` must not be in flight already.
            tokens: tokens that it is expected to take, prompt and answer.
            prefixes: hashes of ever longer prefixes.
            group: the group that it belongs to; groups take turns.

        Raises:
            PoolFullError: too many are waiting already, or it has waited too long; `retry_after_s` says when to retry.
            PoolClosedError: the service stops.
            RequestLostError: its workers failed; raised from the chunks if part of the answer was given already.
            InvalidElasticError: the same id is in flight.
        """
        _ = self._steps
        wanted = ElasticRequest(outgoing.request_id, tokens, prefixes, group)
        return self._in_flight.request(outgoing, wanted)

    def status(self) -> PoolStatus:
        """Return the current status; cheap enough for every scrape and every refresh of a page."""
        return status_of(
            self._steps.pool,
            self._counts,
            self._clock.monotonic(),
            name=self.name,
            policy=self._policy_name,
            is_open=self._steps.is_open and not self._is_stopping,
            models=self._models,
            kinds={name: engine.kind for name, engine in self._engines.items()},
        )

    async def changed(self) -> None:
        """Return once anything has changed since the call; a burst of changes counts as one.

        The end of the service is the last change; a later call waits until cancelled.
        """
        await self._steps.changed()

    async def until(self, holds: Callable[[PoolStatus], bool]) -> PoolStatus:
        """Return the first status for which `holds` is true, beginning with the current one.

        Raises:
            PoolClosedError: the service ended before that.
        """
        while not holds(status := self.status()):
            self._steps.check_open()
            await self._steps.changed()
        return status

    def scale(self, workers: int | None) -> None:
        """Keep this many workers awake, whatever the load; None returns the decision to the policy."""
        self._steps.do(lambda pool, now: pool.scale(workers, now))

    def drain(self, worker_id: str) -> None:
        """Put a worker to sleep and leave it asleep until `unpin`; raises UnknownWorkerError."""
        self._steps.do(lambda pool, now: pool.pin(worker_id, Pin.ASLEEP, now))

    def wake(self, worker_id: str) -> None:
        """Wake a worker and leave it awake until `unpin`; raises UnknownWorkerError."""
        self._steps.do(lambda pool, now: pool.pin(worker_id, Pin.AWAKE, now))

    def unpin(self, worker_id: str) -> None:
        """Let a worker follow the load again; raises UnknownWorkerError."""
        self._steps.do(lambda pool, now: pool.pin(worker_id, None, now))

    def wake_all(self, for_s: float) -> None:
        """Wake every worker and put none to sleep for `for_s` seconds, or until `resume`."""
        self._steps.do(lambda pool, now: pool.wake_all(now, for_s=for_s))

    def resume(self) -> None:
        """Follow the load again: ends `wake_all` and `scale`."""
        self._steps.do(lambda pool, now: pool.resume(now))

    def reconsider(self) -> None:
        """Ask the policy now instead of at the next interval, as one of its inputs has changed."""
        self._steps.do(lambda pool, now: pool.reconsider(now))

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Refuse new requests, let those in flight end, and end the service; legal twice.

        Args:
            drain_s: seconds that requests in flight get; the rest fails.
        """
        if not self._steps.is_open:
            return
        self._is_stopping = True
        self._steps.do(lambda pool, now: pool.close(now))
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self._steps.pool.requests and self._steps.is_open:
                    await self._steps.changed()
        self._end()
        await self._steps.cancelled()

    def _claim(self, exits: AsyncExitStack) -> None:
        refused: list[Exception] = []
        for name in self._engines:
            if name.startswith(("http://", "https://")):
                try:
                    exits.callback(claim(name, self.name).give_back)
                except WorkerClaimedError as error:
                    refused.append(error)
        if refused:
            raise together(refused)

    def _take_up(self, opening: Opening) -> None:
        pool = ElasticPool(
            self._config, opening.slots, self._policy, self._clock.monotonic(), awake=opening.awake, name=self.name
        )
        steps = self._entered = Steps(self.name, pool, self._clock, self._hear, self._carry_out)
        self._supervisors = {
            name: WorkerSupervisor(engine, self._leases, self._config, steps, is_checked=name in opening.facts)
            for name, engine in self._engines.items()
        }
        self._in_flight = InFlight(self._engines, self._config, self._counts, steps)
        self._models = opening.models

    async def _lease(self, awake: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(self._config.start_timeout):
                taken = await asyncio.gather(
                    *(self._supervisors[name].take_lease() for name in awake), return_exceptions=True
                )
        except TimeoutError:
            raise InvalidElasticError(
                f"Workers that are awake need a lease, which was not given within "
                f"{self._config.start_timeout:g} s (got {', '.join(awake)})",
                next_step="Put the engines to sleep before the pool starts, or free what they stand on.",
            ) from None
        for each in taken:
            if each is not None:
                raise each

    def _hear(self, event: Event) -> None:
        self._counts.take(event)
        if isinstance(event, events.WorkerChanged):
            self._supervisors[event.worker].now(WorkerState(event.after))
        self._emit(event)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Send | Abort | Cut | Fail):
            self._in_flight.carry_out(command)
        else:
            self._supervisors[command.worker_id].carry_out(command)

    def _end(self) -> None:
        has_failed = not self._steps.is_open and not self._is_stopping
        self._in_flight.end(f"The elastic pool {self.name} {'has failed' if has_failed else 'has been stopped'}")
        self._steps.close()

    async def _give_back_leases(self) -> None:
        await asyncio.gather(*(supervisor.give_back() for supervisor in self._supervisors.values()))
