"""The workers: a limit on concurrent episodes, not a set of polling loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headgate.campaign.acceptance import Acceptance
from headgate.campaign.figures import WorkerFigures
from headgate.campaign.health import Health
from headgate.campaign.parts import Parts
from headgate.campaign.plan import ChatSource
from headgate.campaign.samples import MAX_ATTEMPTS, poison_result, sample_of
from headgate.campaign.waiting import WaitingEpisodes
from headgate.core import Model, Sample, Task, new_trace_id
from headgate.core.events import TaskDeferred, TaskReturned, TaskStarted
from headgate.environments import converse
from headgate.scheduling import Dispatch


class Workforce:
    """Runs an episode for every task that the dispatcher grants a worker. Owned by the campaign.

    A freed worker is given to the next task in the same turn of the loop. Every episode runs under a lease that ends
    with it, whatever happens. While an episode waits for its provider its worker is lent to another one
    (`WaitingEpisodes`); one that ends only because its provider admits nothing goes back into the queue.
    """

    def __init__(
        self,
        parts: Parts,
        health: Health,
        acceptance: Acceptance,
        chats: ChatSource,
        *,
        became_idle: Callable[[], None],
        ended: Callable[[Sample], None],
    ) -> None:
        self._parts = parts
        self._health = health
        self._acceptance = acceptance
        self._chats = chats
        self._became_idle = became_idle
        self._ended = ended
        self._running: dict[str, tuple[Task, asyncio.Task[None]]] = {}
        self._episodes: asyncio.TaskGroup | None = None
        self.figures = WorkerFigures(parts.settings.num_evaluation_workers, parts.now())
        self._waiting = WaitingEpisodes(parts, self.figures)
        parts.fill_workers = self.fill

    @property
    def tasks(self) -> list[Task]:
        """The tasks in progress."""
        return [task for task, _ in self._running.values()]

    async def run(self) -> None:
        """Let episodes run until the campaign stops, then wait for those in progress for the drain time.

        What has not ended by then is cancelled: its task stays open in the journal and runs again.
        """
        async with asyncio.TaskGroup() as episodes:
            self._episodes = episodes
            self.fill()
            await self._parts.stopping.wait()
            self._episodes = None
            in_flight = [running for _, running in self._running.values()]
            if in_flight:
                await asyncio.wait(in_flight, timeout=self._parts.settings.drain_timeout_s)
            for running in in_flight:
                running.cancel()

    def fill(self) -> None:
        """Start episodes while the dispatcher grants workers."""
        if self._episodes is None or self._parts.stopping.is_set() or self._parts.journal.is_blocked:
            return
        dispatcher = self._parts.dispatcher
        while True:
            now = self._parts.now()
            granted = dispatcher.take(now)
            if granted is None:
                break
            self._start(granted, now, self._episodes)
        changed = self._parts.backpressure.update(len(dispatcher.queue), self._parts.now())
        if changed is not None:
            self._parts.emit(changed)
            self._parts.wake.set()
        if self._parts.wants_buffered():
            self._parts.wake.set()
        if not self._running:
            self._became_idle()

    def _start(self, granted: Dispatch, now: float, episodes: asyncio.TaskGroup) -> None:
        task = granted.task
        self._parts.dequeued_recently.add(now)
        self.figures.started(now)
        self._waiting.started(task, granted.lease)
        self._acceptance.note_started(task.task_id)
        if self._parts.requests is not None:
            self._parts.requests.budgets.begin(task.task_id, task.model)
        model = self._parts.samplers[task.model].model
        self._running[task.task_id] = (task, episodes.create_task(self._work(granted, model, now)))

    async def _work(self, granted: Dispatch, model: Model, started_at: float) -> None:
        task = granted.task
        may_run_again = False
        try:
            sample = await self._episode(granted, model, started_at)
            sample = self._waiting.explained(task, sample)
            may_run_again = self._waiting.may_defer(task, sample)
        except BaseException as error:
            self._episodes = None  # stopping, or ending on a defect of ours: the group takes no new episode
            if isinstance(error, asyncio.CancelledError):
                self._parts.emit(TaskReturned(task.task_id, task.model, task.environment, "the campaign is stopping"))
            raise
        finally:
            ended = self._parts.now()
            del self._running[task.task_id]
            self._waiting.ended(task, ended)
            self._parts.dispatcher.finished(task, granted.lease, ended)
            self.figures.ended(ended, ended - started_at)
            if self._parts.requests is not None:
                self._parts.requests.budgets.ended(task.task_id)
            self._settle(task.model)
        if may_run_again:
            self._defer(task, sample, ended)
            return
        self._acceptance.add(sample)
        self._ended(sample)
        # The model is held before its worker is given away: the next task must not go to a service just found down.
        is_changed = self._health.observe(sample, started_at, ended)
        self.fill()
        if is_changed:
            await self._health.remember(task.model)

    def _defer(self, task: Task, sample: Sample, now: float) -> None:
        """Put a task back into the queue whose provider admits nothing now."""
        parts = self._parts
        reason = sample.error or "its provider admits nothing now"
        if self._episodes is None or task.model not in parts.samplers:
            # It stays open in the journal, or is withdrawn with its model.
            parts.emit(TaskReturned(task.task_id, task.model, task.environment, reason))
        else:
            parts.emit(TaskDeferred(task.task_id, task.model, task.environment, reason, self._waiting.deferred(task)))
            parts.dispatcher.enqueue([task], now)
            parts.ready_since[task.task_id] = now
        self.fill()

    def _settle(self, model: str) -> None:
        """Withdraw what a model has left once no episode of it is in progress."""
        requests = self._parts.requests
        if requests is not None and requests.is_settling and not self._parts.dispatcher.in_flight(model):
            requests.settle(model)

    async def _episode(self, granted: Dispatch, model: Model, started_at: float) -> Sample:
        parts, task = self._parts, granted.task
        trace_id = new_trace_id()
        queue_wait_s = started_at - parts.ready_since.pop(task.task_id, started_at)
        about = (task.task_id, task.model, task.environment, queue_wait_s, trace_id)
        parts.emit(TaskStarted(*about, granted.lease.lease_id, task.attempt))
        if task.attempt > MAX_ATTEMPTS:
            result = poison_result(task)
        else:
            chat = self._chats.chat(model, task, parts.emit, trace_id=trace_id)
            result = await converse(parts.environments[task.environment], task.index, task.seed, chat, model=task.model)
        return sample_of(
            task,
            result,
            started_at=started_at,
            latency_s=parts.now() - started_at,
            queue_wait_s=queue_wait_s,
            trace_id=trace_id,
            keep_conversation=parts.settings.keep_conversations,
        )
