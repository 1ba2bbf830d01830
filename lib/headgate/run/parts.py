"""What the sides of a campaign share: the decision makers, the journal, the clock, and the event stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.config import Settings
from headgate.core import Clock
from headgate.core.events import Emit
from headgate.environments import Environment
from headgate.run.dispatch import WORKERS
from headgate.run.figures import PairFigures
from headgate.run.request_side import RequestSide
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
        is_traced: whether events of single tasks are told.
        is_judged: whether a judge reads answers of the run.
        ready_since: task id -> when it became ready.
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
    is_traced: bool = False
    is_judged: bool = False
    pairs: PairFigures = field(default_factory=PairFigures)
    ready_since: dict[str, float] = field(default_factory=dict)
    enqueued_recently: SlidingCount = field(default_factory=lambda: SlidingCount(span_s=60.0, bucket_s=1.0))
    dequeued_recently: SlidingCount = field(default_factory=lambda: SlidingCount(span_s=60.0, bucket_s=1.0))
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def room(self) -> int:
        """Return how many more tasks the ready queue takes now."""
        return self.backpressure.room(self.backlog())

    def backlog(self) -> int:
        """Return the ready tasks that wait for a worker; what waits for a judge keeps nobody's sample out."""
        queue = self.dispatcher.queue
        return queue.demand(WORKERS) if self.is_judged else len(queue)

    def wants_buffered(self) -> bool:
        """Return whether what is buffered shall enter the queue at once: a free worker waits for no batch to fill."""
        has_free_worker = self.dispatcher.book.available(WORKERS) > 0
        return has_free_worker and self.batches.size > 0 and self.room() > 0
