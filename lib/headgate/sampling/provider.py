"""Where tasks come from: the samplers of this process, or another server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Protocol

import httpx
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from headgate.core import Model
from headgate.core.errors import HeadgateError
from headgate.core.events import Event
from headgate.sampling.roster_documents import read_up_to_limit
from headgate.sampling.sampler import Demand, ModelSampler
from headgate.sampling.timers import TimerHeap

DUES_AT_ONCE = 256
"""Samplers asked in one go; the event loop gets a turn between goes, so that a herd delays nobody's answer."""


class TaskProviderError(HeadgateError):
    """A task provider did not answer, or with something that is no list of tasks."""

    code = "task_provider_failed"
    http_status = 502
    next_step = "Check the provider's address and its log; it is asked again by itself."


class _ServedTask(BaseModel):
    """A task as a server gives it; further fields are its own business."""

    environment: Annotated[str, Field(validation_alias=AliasChoices("env", "environment"))]
    sequence: Annotated[int, Field(validation_alias=AliasChoices("task_id", "sequence"), ge=0, lt=2**63)]


_TASKS: Final = TypeAdapter(list[_ServedTask])


class TaskProvider(Protocol):
    """A source of demand."""

    def next_at(self, now: float) -> float | None:
        """Return when `take` has something to do next; None when only a change of the roster can give it some."""
        ...

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return demand that has come due, and what happened meanwhile."""
        ...

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Take note of the models that are sampled from now on."""
        ...


class LocalTaskProvider:
    """Demand by daily rates, from this process's samplers. One timer heap drives them all."""

    def __init__(self, samplers: Mapping[str, ModelSampler]) -> None:
        self._samplers = samplers
        self._timers = TimerHeap()

    def next_at(self, now: float) -> float | None:  # noqa: ARG002  the protocol gives `now` to providers that poll
        """Return when the earliest sampler wants to be asked."""
        return self._timers.next_at()

    def touch(self, keys: Iterable[str], now: float) -> None:
        """Read again when the named samplers want to be asked."""
        for key in keys:
            sampler = self._samplers.get(key)
            self._timers.set(key, sampler.next_at(now) if sampler else None)

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return what the samplers whose time has come demand."""
        demand: list[Demand] = []
        happened: list[Event] = []
        due = self._timers.pop_due(now, DUES_AT_ONCE)
        for key in due:
            if key not in self._samplers:
                continue  # left the roster a moment ago; `roster_changed` is on its way
            wanted, events = self._samplers[key].due(now)
            demand.extend(wanted)
            happened.extend(events)
        self.touch(due, now)
        return demand, happened

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Drop the timers of models that are gone; `touch` sets those of new ones."""
        present = {model.key for model in models}
        for key in set(self._timers.keys()) - present:
            self._timers.set(key, None)


class HttpTaskProvider:
    """Demand from another server: `GET {url}/tasks/{uid}` per model answers a JSON array of tasks.

    A task is an object with `env` (or `environment`) and `task_id` (or `sequence`), the number of the task within the
    environment. A server that fails is asked again after `retry_s`, doubling up to ten times that.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, *, poll_s: float = 30.0, retry_s: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._client = client
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._failures = 0
        self._next_at = 0.0
        self._models: tuple[Model, ...] = ()

    def next_at(self, now: float) -> float | None:
        """Return when the server is asked next."""
        return max(self._next_at, now) if self._models else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Ask the server for the tasks of every model.

        Raises:
            TaskProviderError: if the server does not answer with a list of tasks.
        """
        try:
            demand = [d for model in self._models for d in await self._tasks_of(model, now)]
        except (httpx.HTTPError, httpx.InvalidURL, ValidationError) as error:
            self._next_at = now + self._retry_s * min(2 ** min(self._failures, 4), 10)
            self._failures += 1
            raise TaskProviderError(f"task provider {self._url} failed: {error!r}") from error
        self._failures = 0
        self._next_at = now + self._poll_s
        return demand, ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Ask for the tasks of these models from now on."""
        self._models = tuple(models)

    async def _tasks_of(self, model: Model, now: float) -> list[Demand]:
        async with self._client.stream("GET", f"{self._url}/tasks/{model.uid}") as response:
            response.raise_for_status()
            listed = await read_up_to_limit(response)  # a list that was cut is none
        return [
            Demand(model.key, task.environment, due_at=now, interval_s=0.0, sequence=task.sequence)
            for task in _TASKS.validate_json(listed)
        ]
