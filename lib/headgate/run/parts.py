"""What the sides of a campaign share: the decision makers, the journal, the clock, and the event stream."""

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
        samplers: by model key, those of the roster in force.
        local: the provider that asks the samplers.
        provider: where demand comes from: `local`, or one in its place.
        requests: who may send requests; None where the models are scripted.
        hosts: of environments on other machines; None where all are played on this one.
        is_traced: whether events of single tasks are told.
        is_judged: whether a judge reads answers of the run.
        outside: environments that outside workers play.
        is_outside_full: see `holds_outside`.
        ready_since: task id -> when it became ready.
        answered: model -> its ready tasks whose reply came back from a batch. They need nothing more of its budgets, so
            that its lane is open for them when these are used up.
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
        """Return a task as it is enqueued: where its reply came back from a batch it goes first, whatever is spent."""
        requests = self.requests
        if requests is None or requests.batches is None or not requests.batches.is_answered(task.task_id):
            return task
        self.answered.setdefault(task.model, deque()).append(task.task_id)
        if requests.budgets.stop_of(task.model) is not None:
            self.dispatcher.set_pressure(task.model, None)
        return replace(task, priority=task.priority + 1)

    def close_spent_lanes(self) -> None:
        """Close the lanes that were open only for what is answered, once all of that has begun."""
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
        """Return the ready tasks that wait for a worker; what waits for others keeps nobody's sample out."""
        queue = self.dispatcher.queue
        if not self.is_judged and not self.outside:
            return len(queue)
        # By rates, what outside workers play is held back by itself (`holds_outside`).
        return queue.demand(WORKERS) + (0 if self.provider is self.local else queue.demand(JOBS))

    def holds_outside(self) -> bool:
        """Return whether so many samples wait for outside workers that no further one shall fall due.

        They fall due again when few enough are left, as with backpressure, so that nobody is told twice a second.
        """
        bounds, waiting = self.backpressure, self.dispatcher.queue.demand(JOBS) if self.outside else 0
        self.is_outside_full = waiting > (bounds.resume_at if self.is_outside_full else bounds.pause_at - 1)
        return self.is_outside_full

    def wants_buffered(self) -> bool:
        """Return whether what is buffered shall enter the queue at once: a free worker waits for no batch to fill."""
        book = self.dispatcher.book
        has_free_worker = book.available(WORKERS) > 0 or bool(self.outside and book.available(JOBS) > 0)
        return has_free_worker and self.batches.size > 0 and self.room() > 0
