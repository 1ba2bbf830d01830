"""What the components of a campaign share: the decision makers, the journal, the clock, and the event stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from headgate.config import Settings
from headgate.core import Clock, Task, TaskId
from headgate.core.events import Emit
from headgate.environments import Environment
from headgate.run.controls import Controls
from headgate.run.dispatch import JOBS, WORKERS
from headgate.run.figures import PairFigures
from headgate.run.hosts import EnvironmentHosts
from headgate.run.request_side import DAILY_BUDGET, RequestSide
from headgate.sampling import FairBatches, LocalTaskProvider, ModelSampler, SlidingCount, TaskProvider
from headgate.scheduling import Backpressure, Dispatcher
from headgate.storage import JournalThread


@dataclass(slots=True)
class Parts:
    """The parts of one campaign. Everything runs on one event loop, so nothing here needs a lock.

    Attributes:
        now: the campaign's time: seconds since the epoch at start, monotonic from there on.
        samplers: those of the roster in force, by model key.
        local: the provider that asks the samplers.
        provider: where demand comes from: `local` or its replacement.
        requests: admits and sends requests; None if the models are scripted.
        hosts: of environments on other machines; None if all are played on this one.
        is_traced: whether events of single tasks are emitted.
        is_judged: whether a judge reads answers of the run.
        outside: environments that outside workers play.
        is_outside_full: see `holds_outside`.
        ready_since: when each task became ready, by task id.
        answered: ready tasks whose reply came back from a batch, by model. They spend no more of its budgets, so its
            lane stays open for them when these are used up.
        wake: set when the demand loop has something to look at.
        stopping: set when the campaign takes on no more work.
    """

    settings: Settings
    environments: Mapping[str, Environment]
    clock: Clock
    now: Callable[[], float]
    emit: Emit
    journal: JournalThread
    dispatcher: Dispatcher
    backpressure: Backpressure
    batches: FairBatches
    samplers: dict[str, ModelSampler]
    local: LocalTaskProvider
    provider: TaskProvider
    requests: RequestSide | None = None
    hosts: EnvironmentHosts | None = None
    is_traced: bool = False
    is_judged: bool = False
    outside: Set[str] = frozenset()
    is_outside_full: bool = False
    controls: Controls = field(default_factory=Controls)
    pairs: PairFigures = field(default_factory=PairFigures)
    ready_since: dict[str, float] = field(default_factory=dict)
    answered: dict[str, deque[TaskId]] = field(default_factory=dict)
    enqueued_recently: SlidingCount = field(default_factory=lambda: SlidingCount(span_s=60.0, bucket_s=1.0))
    dequeued_recently: SlidingCount = field(default_factory=lambda: SlidingCount(span_s=60.0, bucket_s=1.0))
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def note_answered(self, task: Task) -> Task:
        """Return a task ready to enqueue: if its reply came back from a batch it goes first, even without budget."""
        requests = self.requests
        if requests is None or requests.batches is None or not requests.batches.is_answered(task.task_id):
            return task
        self.answered.setdefault(task.model, deque()).append(task.task_id)
        if requests.budgets.stop_of(task.model) is not None:
            self.dispatcher.set_pressure(task.model, None)
        return replace(task, priority=task.priority + 1)

    def close_spent_lanes(self) -> None:
        """Close lanes that stayed open only for answered tasks, once all of these have begun."""
        for model, answered in list(self.answered.items()):
            while answered and answered[0] not in self.dispatcher.queue:
                answered.popleft()
            if not answered:
                del self.answered[model]
                if self.requests is not None and self.requests.budgets.stop_of(model) is not None:
                    self.dispatcher.set_pressure(model, DAILY_BUDGET)

    def room(self) -> int:
        """Return how many more tasks the ready queue takes now."""
        return self.backpressure.room(self.backlog())

    def backlog(self) -> int:
        """Return how many ready tasks wait for a worker; tasks that wait for other resources fill no queue."""
        queue = self.dispatcher.queue
        if not self.is_judged and not self.outside:
            return len(queue)
        # When sampling by rates, `holds_outside` limits the tasks for outside workers.
        return queue.demand(WORKERS) + (0 if self.provider is self.local else queue.demand(JOBS))

    def holds_outside(self) -> bool:
        """Return whether so many samples wait for outside workers that no more should fall due.

        As with backpressure, there is hysteresis: they fall due again once few enough are left.
        """
        bounds, waiting = self.backpressure, self.dispatcher.queue.demand(JOBS) if self.outside else 0
        self.is_outside_full = waiting > (bounds.resume_at if self.is_outside_full else bounds.pause_at - 1)
        return self.is_outside_full

    def wants_buffered(self) -> bool:
        """Return whether to enqueue buffered tasks at once: a free worker should not wait for a batch to fill."""
        book = self.dispatcher.book
        has_free_worker = book.available(WORKERS) > 0 or bool(self.outside and book.available(JOBS) > 0)
        return has_free_worker and self.batches.size > 0 and self.room() > 0
