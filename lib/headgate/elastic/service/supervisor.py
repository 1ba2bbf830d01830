"""Supervises one worker's engine: its calls one after the other, and its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from headgate.elastic.engines.engine import Controlled
from headgate.elastic.engines.smg import SmgEngine
from headgate.elastic.errors import FAULTS, EngineError, is_final, sentence
from headgate.elastic.outbox import LetGo, Read, Sleep, Wake
from headgate.elastic.service.steps import Steps
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad, WorkerState

OnLost = Callable[[float], None]
"""Called when a worker's lease is needed by others, with the seconds that are left; from any thread."""


WorkerLease = Callable[[], Awaitable[None]]
"""The right of one worker to be awake: calling it gives the lease back; legal twice, and after the lease was lost.

It raises a `HeadgateError` if the lease could not be given back; its source will then notice that by itself.
"""


class WorkerLeases(Protocol):
    """A source of leases. A worker has at most one."""

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
        """Return a lease once one is available. The call is cancelled when the worker no longer needs to be awake.

        Args:
            worker_id: the worker.
            on_lost: call it once, from any thread, when the lease will be taken away, with the seconds until then.

        Raises:
            HeadgateError: there will be no lease; the worker counts as failed and is tried again later.
        """


class FreeLeases:
    """Leases for workers with machines of their own: always available, and never lost."""

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:  # noqa: ARG002 - part of the protocol
        """Return a lease at once."""

        async def give_back() -> None:
            pass

        return give_back


_log = logging.getLogger("headgate.elastic")


class WorkerSupervisor:
    """Carries out the pool's commands for one worker. Owned by the service.

    Invariant: no two control calls to the engine overlap; a call that is no longer wanted is cancelled and has ended
    before the next one begins.

    The pool sets the deadlines for starting and for going to sleep, and sends `LetGo` when they have passed. Engines
    retry failed calls themselves, as often as the settings allow.
    """

    def __init__(
        self, engine: Controlled, leases: WorkerLeases, config: ElasticConfig, steps: Steps, *, is_checked: bool = True
    ) -> None:
        self.engine = engine
        self._leases = leases
        self._config = config
        self._steps = steps
        self._is_checked = is_checked
        self._lease: WorkerLease | None = None
        self._lease_number = 0
        self._turn = asyncio.Lock()
        self._calls: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    @property
    def worker_id(self) -> str:
        """The name of the worker."""
        return self.engine.name

    def carry_out(self, command: Read | Sleep | Wake | LetGo) -> None:
        """Start carrying out a command."""
        if self._reading is not None and not isinstance(command, LetGo):
            self._reading.cancel()
        match command:
            case Read():
                self._reading = self._go(lambda: self._read(command), "read")
            case Sleep():
                self._go(lambda: self._sleep(command), "sleep")
            case Wake():
                self._go(lambda: self._wake(command), "wake")
            case LetGo():
                self.cancel()
                self._start(self.give_back, "let go")

    def now(self, state: WorkerState) -> None:
        """Make the worker's lease and router match its new state, where no command of the pool does that."""
        if isinstance(self.engine, SmgEngine):
            if state is WorkerState.ACTIVE:
                self._go(partial(self._tell_router, self.engine.route), "route")
            elif state is WorkerState.DRAINING:
                self._go(partial(self._tell_router, self.engine.unroute), "unroute")
        if state is WorkerState.INACTIVE and self._lease is not None:  # it was found asleep
            self._start(self.give_back, "give back")
        elif state is WorkerState.ACTIVE and self._lease is None:  # it had failed, and has come back awake
            self._go(self._regain, "lease")

    def cancel(self) -> None:
        """Cancel all pending calls."""
        for task in self._calls:
            task.cancel()

    async def take_lease(self) -> None:
        """Take the worker's lease; raises like `WorkerLeases.take`."""
        self._lease_number += 1
        self._lease = await self._leases.take(self.worker_id, self._on_lost(self._lease_number))

    async def give_back(self) -> None:
        """Give the lease back, if there is one."""
        self._lease_number += 1  # from now on ignore any loss of the old lease
        if self._lease is None:
            return
        try:
            async with asyncio.timeout(self._config.engine_timeout):
                await self._lease()
        except FAULTS as error:
            _log.warning("The lease of %s was not released: %s", self.worker_id, sentence(error))
        self._lease = None  # not earlier: if this is cancelled, the next call must still give the lease back

    # Commands

    async def _read(self, command: Read) -> None:
        worker_id, epoch = command.worker_id, command.epoch
        try:
            load = await self._load()
        except FAULTS as error:
            why = sentence(error)
            self._steps.do(lambda pool, now: pool.unanswered(worker_id, epoch, why, now))
        else:
            self._steps.do(lambda pool, now: pool.read(worker_id, epoch, load, now))

    async def _load(self) -> EngineLoad:
        timeout_s = self._config.engine_timeout
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                await self._check()
                return await self.engine.load()
        except TimeoutError:
            if deadline.expired():
                raise EngineError(f"{self.worker_id} did not answer within {timeout_s:g} s") from None
            raise

    async def _sleep(self, command: Sleep) -> None:
        worker_id, epoch = command.worker_id, command.epoch
        try:
            await self.engine.sleep()
        except FAULTS as error:
            why = sentence(error)
            self._steps.do(lambda pool, now: pool.stuck(worker_id, epoch, why, now))
        else:
            await self.give_back()
            self._steps.do(lambda pool, now: pool.slept(worker_id, epoch, now))

    async def _wake(self, command: Wake) -> None:
        worker_id, epoch = command.worker_id, command.epoch
        try:
            if self._lease is None:
                await self.take_lease()
            self._steps.do(lambda pool, now: pool.leased(worker_id, epoch, now))
            await self._check()
            await self.engine.wake()
        except FAULTS as error:
            why, final = sentence(error), is_final(error)
            self._steps.do(lambda pool, now: pool.stuck(worker_id, epoch, why, now, is_final=final))
        else:
            self._steps.do(lambda pool, now: pool.woken(worker_id, epoch, now))

    async def _check(self) -> None:
        """Check an engine that did not answer when the service began, before its first use."""
        if not self._is_checked:
            await self.engine.check()
            self._is_checked = True

    async def _tell_router(self, tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Add the engine to its gateway or remove it; on failure, waking and sleeping try again."""
        try:
            await tell()
        except FAULTS as error:
            _log.warning("The router of %s could not be updated: %s", self.worker_id, sentence(error))

    async def _regain(self) -> None:
        """Take a lease for a worker that is awake without one; if none is available now, the worker must sleep."""
        within_s = self._config.drain_timeout
        try:
            async with asyncio.timeout(self._config.engine_timeout):
                await self.take_lease()
        except FAULTS:
            self._steps.do(lambda pool, now: pool.lease_lost(self.worker_id, now, within_s=within_s))

    # How

    def _on_lost(self, number: int) -> OnLost:
        loop = asyncio.get_running_loop()

        def on_lost(within_s: float) -> None:
            with suppress(RuntimeError):  # the loop is closed: the service has ended, and with it the lease
                loop.call_soon_threadsafe(self._lost, number, within_s)

        return on_lost

    def _lost(self, number: int, within_s: float) -> None:
        if number == self._lease_number and self._steps.is_open:
            self._steps.do(lambda pool, now: pool.lease_lost(self.worker_id, now, within_s=within_s))

    def _go(self, work: Callable[[], Coroutine[Any, Any, None]], what: str) -> asyncio.Task[None]:
        """Start a call that `cancel` cancels."""
        call = self._start(work, what)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]], what: str) -> asyncio.Task[None]:
        return self._steps.start(self._in_turn(work), f"{what} {self.worker_id}")

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._turn:
            await work()
