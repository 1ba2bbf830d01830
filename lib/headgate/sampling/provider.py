"""Where tasks come from: the samplers of this process, or another server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol

import httpx
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from headgate.core import Model, Task, TimerHeap
from headgate.core.errors import HeadgateError
from headgate.core.events import Event, TaskProviderFailed
from headgate.sampling.roster import read_up_to_limit
from headgate.sampling.sampler import Demand, ModelSampler


@dataclass(slots=True)
class FairBatches:
    """Buffers of tasks, one per sampler. Pure.

    A buffer is ready when it holds `batch_size` tasks or its oldest has waited `flush_after_s`. Each buffer has its own
    timer, so no sampler is always first. A removed sampler's buffer is dropped with it; no task is enqueued twice.
    """

    batch_size: int = 50
    flush_after_s: float = 30.0
    _buffers: dict[str, list[Task]] = field(default_factory=dict)
    _flush: TimerHeap = field(default_factory=TimerHeap)
    size: int = 0

    def add(self, sampler: str, task: Task, now: float) -> None:
        """Buffer a task of a sampler."""
        buffer = self._buffers.setdefault(sampler, [])
        buffer.append(task)
        self.size += 1
        if len(buffer) >= self.batch_size:
            self._flush.set(sampler, now)
        elif len(buffer) == 1:
            self._flush.set(sampler, now + self.flush_after_s)

    def next_at(self) -> float | None:
        """Return when the next buffer becomes ready; None when all are empty."""
        return self._flush.next_at()

    def take_ready(self, now: float, *, everything: bool = False) -> list[tuple[str, list[Task]]]:
        """Remove and return the buffers that are ready, or `everything`, in the order in which they become ready."""
        return [(sampler, self.take(sampler)) for sampler in self._flush.pop_due(math.inf if everything else now)]

    def take(self, sampler: str) -> list[Task]:
        """Remove and return one sampler's buffer, ready or not."""
        self._flush.set(sampler, None)
        tasks = self._buffers.pop(sampler, [])
        self.size -= len(tasks)
        return tasks

    def put_back(self, sampler: str, tasks: list[Task], ready_at: float) -> None:
        """Put tasks for which the queue had no room back at the head of their buffer, ready again at `ready_at`."""
        self._buffers[sampler] = tasks + self._buffers.get(sampler, [])
        self.size += len(tasks)
        self._flush.set(sampler, ready_at)

    def items(self) -> Iterator[Task]:
        """Iterate over all buffered tasks, sampler by sampler."""
        return (task for buffer in self._buffers.values() for task in buffer)


DUES_AT_ONCE = 256
"""Samplers asked per call of `take`; the event loop runs between calls, so that a herd does not block it."""


class TaskProviderError(HeadgateError):
    """A task provider did not answer, or its answer is not a list of tasks."""

    code = "task_provider_failed"
    http_status = 502
    next_step = "Check the provider's address and its log; Headgate asks it again by itself."


class _ServedTask(BaseModel):
    """A task in a server's answer; further fields are ignored."""

    environment: Annotated[str, Field(validation_alias=AliasChoices("env", "environment"))]
    sequence: Annotated[int, Field(validation_alias=AliasChoices("task_id", "sequence"), ge=0, lt=2**63)]


_TASKS: Final = TypeAdapter(list[_ServedTask])


class TaskProvider(Protocol):
    """A source of demand."""

    def next_at(self, now: float) -> float | None:
        """Return when `take` next has something to do; None if only a change of the roster can change that."""

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the demand that has come due, and the events to report."""

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Sample these models from now on."""


class LocalTaskProvider:
    """Demand by daily rates, from this process's samplers. One timer heap drives them all."""

    def __init__(self, samplers: Mapping[str, ModelSampler]) -> None:
        self._samplers = samplers
        self._timers = TimerHeap()

    def next_at(self, now: float) -> float | None:  # noqa: ARG002  the protocol gives `now` to providers that poll
        """Return when the earliest sampler is due."""
        return self._timers.next_at()

    def touch(self, keys: Iterable[str], now: float) -> None:
        """Set the timers of the named samplers anew."""
        for key in keys:
            sampler = self._samplers.get(key)
            self._timers.set(key, sampler.next_at(now) if sampler else None)

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the demand of the samplers that are due."""
        demand: list[Demand] = []
        happened: list[Event] = []
        due = self._timers.pop_due(now, DUES_AT_ONCE)
        for key in due:
            if key not in self._samplers:
                continue  # just left the roster; the call of `roster_changed` follows
            wanted, events = self._samplers[key].due(now)
            demand.extend(wanted)
            happened.extend(events)
        self.touch(due, now)
        return demand, happened

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Drop the timers of removed models; `touch` sets those of new ones."""
        present = {model.key for model in models}
        for key in set(self._timers.keys()) - present:
            self._timers.set(key, None)


class HttpTaskProvider:
    """Demand from another server: `GET {url}/tasks/{uid}` returns a JSON array of tasks for each model.

    A task is an object with `env` (or `environment`) and `task_id` (or `sequence`), its number in the environment.
    After a failure it retries in the lesser of `retry_s` and `poll_s`, doubled per further failure up to tenfold.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, *, poll_s: float = 30.0, retry_s: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._client = client
        self._poll_s = poll_s
        self._retry_s = min(retry_s, poll_s)
        self._failures = 0
        self._next_at = 0.0
        self._models: tuple[Model, ...] = ()

    def next_at(self, now: float) -> float | None:
        """Return when the server is asked next."""
        return max(self._next_at, now) if self._models else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Ask the server for the tasks of every model; without an answer, not for those of the models behind it.

        Raises:
            TaskProviderError: if the server has no task, and some answer was no list of tasks.
        """
        demand: list[Demand] = []
        failed: Exception | None = None
        for place, model in enumerate(self._models, 1):
            try:
                demand += await self._tasks_of(model, now)
            except (httpx.HTTPError, httpx.InvalidURL, ValidationError, TimeoutError) as error:
                failed = error
                if not isinstance(error, httpx.HTTPStatusError | ValidationError):
                    self._models = self._models[place:] + self._models[:place]  # the others first, next time
                    break
        wait_s = self._poll_s if failed is None else self._retry_s * min(2 ** min(self._failures, 4), 10)
        self._next_at = now + wait_s
        self._failures = 0 if failed is None else self._failures + 1
        if failed is None:
            return demand, ()
        limit_s = self._client.timeout.read
        said = f"no whole answer within {limit_s:g} s" if isinstance(failed, TimeoutError) else repr(failed)
        why = f"task provider {self._url} failed: {said}"
        if not demand:
            raise TaskProviderError(why) from failed
        return demand, [TaskProviderFailed(why, wait_s)]

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Ask for the tasks of these models from now on."""
        self._models = tuple(models)

    async def _tasks_of(self, model: Model, now: float) -> list[Demand]:
        async with (
            asyncio.timeout(self._client.timeout.read),  # the client's own is for each piece of an answer
            self._client.stream("GET", f"{self._url}/tasks/{model.uid}") as response,
        ):
            response.raise_for_status()
            listed = await read_up_to_limit(response)  # a truncated list fails to parse
        return [
            Demand(model.key, task.environment, due_at=now, interval_s=0.0, sequence=task.sequence)
            for task in _TASKS.validate_json(listed)
        ]
