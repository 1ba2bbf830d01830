"""Runs each command of the ledger as a task with the executor, and reports its result to the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headgate.core import Clock
from headgate.core.errors import JournalError
from headgate.core.tasks import cancelled
from headgate.placement.outbox import Command, CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.service.journal import Writes
from headgate.placement.service.protocol import Executor, GroupFailedError, Running, Stopped
from headgate.placement.service.reconciler import Reconciler
from headgate.placement.service.steps import Steps

AGAIN_S: Final = 1.0
"""Pause before a failed command is sent to the cluster again."""

_SHORT_CHARS: Final = 300
K = TypeVar("K")
_log = logging.getLogger("headgate.placement")


class Supervisor:
    """Runs commands with the executor. Owned by the service.

    Attributes:
        running: request id -> work that was started and is not yet seen gone.
    """

    def __init__(self, steps: Steps, executor: Executor, clock: Clock, reconciler: Reconciler) -> None:
        self.running: dict[str, Running] = {}
        self._steps = steps
        self._executor = executor
        self._clock = clock
        self._reconciler = reconciler
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._watches: dict[Running, asyncio.Task[None]] = {}

    def carry_out(self, command: Command) -> None:
        """Start carrying out a command."""
        match command:
            case CreateGroup():
                self._go(self._create(command))
            case RemoveGroup():
                self._go(self._remove(command))
            case StartWork():
                start = self._go(self._start(command))
                self._starts[command.request_id] = start
                start.add_done_callback(lambda done: _drop(self._starts, command.request_id, done))
            case StopWork():
                self._go(self._stop(command, self._starts.get(command.request_id)))

    def take_up(self, running: Running) -> None:
        """Watch running work."""
        self.running[running.request_id] = running
        watch = self._go(self._watch(running))
        self._watches[running] = watch
        watch.add_done_callback(lambda done: _drop(self._watches, running, done))

    async def close(self) -> None:
        """Cancel all tasks; work continues in the cluster."""
        await cancelled(*self._tasks)

    def _go(self, carrying: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(carrying)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A command of the placement ledger failed", exc_info=error)

    async def _create(self, command: CreateGroup) -> None:
        group_id, epoch = command.group_id, command.epoch
        try:
            nodes = await self._executor.create_group(command)
        except Exception as error:  # noqa: BLE001 - reported to the ledger, which retries later
            why = _told(error, f"group {group_id} was not created")
            self._reconciler.soon.set()
            self._steps.do(lambda ledger, now: ledger.group_failed(group_id, epoch, why, now))
        else:
            self._steps.do(lambda ledger, now: ledger.group_created(group_id, epoch, nodes, now))

    async def _remove(self, command: RemoveGroup) -> None:
        while True:
            try:
                await self._executor.remove_group(command.group_id)
                break
            except Exception as error:  # noqa: BLE001 - its room counts as taken until it is gone
                _told(error, f"group {command.group_id} was not removed; trying again")
                await self._clock.sleep(AGAIN_S)
        self._steps.do(lambda ledger, now: ledger.group_gone(command.group_id, command.epoch, now))

    async def _start(self, command: StartWork) -> None:
        request_id, epoch = command.request_id, command.epoch
        try:
            occupancy, group = self._steps.ledger.requests[request_id], self._steps.ledger.groups[command.group_id]
            order = self._steps.journal.order(occupancy)
            running = await self._executor.start(command.group_id, group.nodes, order)
        except Exception as error:  # noqa: BLE001 - reported to the ledger: the work is queued again
            why = _told(error, f"work {request_id} was not started")
            await self._see_nodes()
            if isinstance(error, GroupFailedError):  # the group is unusable: its node may be dead without being noticed
                self._steps.do(lambda ledger, now: ledger.group_lost(command.group_id, why, now))
            else:
                await self.check_group(command.group_id)
            self._steps.do(lambda ledger, now: ledger.work_lost(request_id, epoch, now, why))
        else:
            self.take_up(running)
            self._steps.do(lambda ledger, now: ledger.work_started(request_id, epoch, now))

    async def _watch(self, running: Running) -> None:
        # The future belongs to the executor, so cancelling this task must not cancel it.
        outcome = await asyncio.shield(asyncio.ensure_future(running.outcome))
        if outcome.kind == "died":
            await self._see_nodes()
        request_id, epoch = running.request_id, running.epoch
        if self.running.get(request_id) is running:
            del self.running[request_id]
        if outcome.kind == "died":
            self._steps.do(lambda ledger, now: ledger.work_lost(request_id, epoch, now, outcome.why))
            return
        failed = None if outcome.kind == "returned" else _last_line(outcome.why)
        current = self._steps.ledger.requests.get(request_id)
        is_current = current is not None and current.epoch == epoch and not current.stage.has_ended
        self._steps.do(
            lambda ledger, now: ledger.work_ended(request_id, epoch, now, failed),
            Writes(results={request_id: outcome} if is_current else {}),
        )

    async def _stop(self, command: StopWork, start: asyncio.Task[None] | None) -> None:
        request_id, epoch = command.request_id, command.epoch
        if start is not None:
            await asyncio.wait([start])
        running = self.running.get(request_id)
        if running is None or running.epoch != epoch:
            self._steps.do(lambda ledger, now: ledger.work_stopped(request_id, epoch, now, saved=False, dead=True))
            return
        stopped = await self._stopped(running, command.timeout_s)
        self._stop_told(running, stopped)
        while not stopped.dead:
            await self._clock.sleep(AGAIN_S)
            stopped = await self._stopped(running, 0.0)
            if stopped.dead:
                self._let_go(running)
                self._steps.do(lambda ledger, now: ledger.work_stopped(request_id, epoch, now, saved=False, dead=True))

    def _stop_told(self, running: Running, stopped: Stopped) -> None:
        request_id, epoch = running.request_id, running.epoch
        if stopped.dead:
            self._let_go(running)
        state = stopped.state
        known = self._steps.ledger.requests.get(request_id)
        is_kept = state is not None and known is not None and known.epoch == epoch and not known.stage.has_ended
        self._steps.do(
            lambda ledger, now: ledger.work_stopped(
                request_id, epoch, now, saved=state is not None, dead=stopped.dead, answered=stopped.answered
            ),
            Writes(states={request_id: state} if is_kept and state is not None else {}),
        )

    async def _stopped(self, running: Running, timeout_s: float) -> Stopped:
        try:
            return await self._executor.stop(running, timeout_s)
        except Exception as error:  # noqa: BLE001 - it may still run, so its group stays quarantined
            _told(error, f"work {running.request_id} was not stopped; trying again")
            return Stopped(None, dead=False)

    def _let_go(self, running: Running) -> None:
        if self.running.get(running.request_id) is running:
            del self.running[running.request_id]
        watch = self._watches.pop(running, None)  # keyed by start, so a later start of the request keeps its watch
        if watch is not None:
            watch.cancel()

    async def _see_nodes(self) -> None:
        """Read the nodes before a loss is reported: the work is placed again at once, and must not get a dead node."""
        try:
            await self._reconciler.look_at_nodes()
        except JournalError:
            raise  # the service ends
        except Exception as error:  # noqa: BLE001 - the cluster does not answer: read again soon
            _told(error, "the nodes could not be read")
            self._reconciler.soon.set()

    async def check_group(self, group_id: str) -> None:
        """Report to the ledger if a group has vanished from the cluster."""
        try:
            existing = await self._executor.existing_groups()
        except Exception as error:  # noqa: BLE001 - the cluster does not answer: the reconciler reads it again
            _told(error, "the groups of the cluster could not be read")
            return
        if group_id not in existing:
            why = "its placement group has vanished from the cluster"
            self._steps.do(lambda ledger, now: ledger.group_lost(group_id, why, now))


def _drop(tasks: dict[K, asyncio.Task[None]], key: K, done: asyncio.Task[None]) -> None:
    """Forget a task that is done, unless another has taken its place."""
    if tasks.get(key) is done:
        del tasks[key]


def _told(error: Exception, what: str) -> str:
    """Log an error, and return it as one sentence."""
    if isinstance(error, GroupFailedError):
        _log.info("%s: %s", what, error.message)
        return error.message
    _log.warning("%s", what, exc_info=error)
    return f"{what}: {type(error).__name__}: {error}"


def _last_line(why: str) -> str:
    lines = why.strip().splitlines() or ["it failed"]
    return lines[-1][:_SHORT_CHARS]
