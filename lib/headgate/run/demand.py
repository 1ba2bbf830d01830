"""The demand side: from due times to queued tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from headgate.core import Task, until_set
from headgate.core.errors import HeadgateError
from headgate.core.events import TaskOpened, TaskProviderFailed, TasksEnqueued
from headgate.run.dispatch import JOBS, SEATS, WORKERS
from headgate.run.health import Health
from headgate.run.matrix import Cell, MatrixTaskProvider, request_seed
from headgate.run.parts import Parts
from headgate.run.settlement import Settling
from headgate.run.stages import Stages
from headgate.sampling import Demand
from headgate.storage import AlreadyTaken, Opening

_ONE_JOB: Final[Mapping[str, int]] = MappingProxyType({JOBS: 1})
_SEATED: Final[Mapping[str, int]] = MappingProxyType({WORKERS: 1, SEATS: 1})

_ENOUGH: Final = 200
"""The most samples that wait for their model's engine: more would only fill the queue that all models share."""

GATHER_S: Final = 0.05
"""Samples due within this time are opened together, in one journal write; none is late by more."""


class DemandSide:
    """Takes demand from the provider, has the journal number it, and enqueues it in fair batches.

    Owned by the campaign; `run` lives until the campaign stops. It sleeps until the next due time, flush or end of a
    pause. Under backpressure it stops asking the provider, so it holds no demand while it waits.
    """

    def __init__(self, parts: Parts, health: Health, settling: Settling, stages: Stages) -> None:
        self._parts = parts
        self._health = health
        self._settling = settling
        self._stages = stages
        hosts = parts.hosts
        self._seated = hosts.names if hosts is not None else frozenset()
        self._judged = frozenset(name for name, one in parts.environments.items() if one.spec.needs_judge)
        self._is_writing = False
        self._ask_at = -math.inf
        self._taken: set[Cell] = set()
        self._own: set[Cell] = set()
        self._matrix = parts.provider if isinstance(parts.provider, MatrixTaskProvider) else None  # others have no end

    async def run(self) -> None:
        """Turn due times into queued tasks until the campaign stops."""
        parts = self._parts
        while not parts.stopping.is_set():
            parts.wake.clear()
            now = parts.now()
            await self._health.end_pauses(now)
            self._is_writing = True
            await self._settling.withdraw(self._stages.withdraw)
            self._is_writing = False
            self._hold_back(now)
            if self._matrix is not None:
                self._settling.pace(self._matrix, self._stages.waiting_tasks())
            if self._may_ask() and now >= self._ask_at:
                await self._ask(now)
            self._flush(parts.now())
            if self.is_dry():
                self._stages.wake()  # the run may be complete
            wait_s = self._wait_s()
            if wait_s == 0:
                await asyncio.sleep(0)
                continue
            await until_set(parts.wake, wait_s)

    async def adopt(self, again: Sequence[Opening] = ()) -> int:
        """Take over tasks that dead processes of this journal left, open those in `again`; return how many in all."""
        parts = self._parts
        found = await parts.journal.write(parts.journal.journal.adopt, list(parts.environments), list(parts.samplers))
        batches = None if parts.requests is None else parts.requests.batches
        if batches is not None and (found or not batches.is_loaded):
            await batches.load(parts.journal)
        if again := [one for one in again if one.model in parts.samplers]:
            opened = await parts.journal.write(parts.journal.journal.open, again)
            found += [one for one in opened if isinstance(one, Task)]
        now = parts.now()
        tasks = [self._needs_of(task) for task in found if task.model in parts.samplers]
        for task in tasks:
            self._own.add((task.model, task.environment, task.sequence))
            if self._goes_into_line(task):
                self._enqueue(task.model, [task], now)
        given_up = self._settling.given_up
        if gone := {(task.model, task.environment): given_up[task.model] for task in tasks if task.model in given_up}:
            self._settling.leave(gone)  # in a closed lane they would keep the run from its end
        return len(tasks)

    @property
    def left_out(self) -> frozenset[Cell]:
        """Tasks that the source gave but the journal refused, because another run has or had them."""
        return frozenset(self._taken - self._own)

    def is_dry(self) -> bool:
        """Return whether nothing is due, buffered or queued, and nothing will fall due on its own."""
        parts = self._parts
        is_empty = not len(parts.dispatcher.queue) and not parts.batches.size and not self._stages.pending
        is_empty = is_empty and not parts.dispatcher.aside and (self._matrix is None or self._matrix.is_empty)
        return is_empty and not self._is_writing and parts.provider.next_at(parts.now()) is None

    def turned(self) -> None:
        """Look again if a turn of the dispatch loop has made room, or begun tasks for which other models wait."""
        parts = self._parts
        was_full = parts.is_outside_full
        has_room = parts.wants_buffered() or self._stages.may_fall_due_again() or was_full is not parts.holds_outside()
        if has_room or (self._matrix is not None and self._matrix.limits and not self._matrix.is_empty):
            parts.wake.set()

    def _may_ask(self) -> bool:
        """Return whether there is room for more demand; buffered tasks count, as they are about to be queued."""
        parts = self._parts
        backlog = parts.backlog() + parts.batches.size
        if parts.controls.pauses and parts.controls.pause_of(None, None) is not None:
            return False  # a source that gives each task once keeps it until the pause ends
        is_open = not parts.backpressure.is_paused and backlog < parts.backpressure.pause_at
        return is_open and not parts.journal.problem

    async def _ask(self, now: float) -> None:
        parts = self._parts
        next_at = parts.provider.next_at(now)
        if next_at is None or next_at > now:
            return
        self._ask_at = now + GATHER_S
        try:
            demand, happened = await parts.provider.take(now)
        except HeadgateError as error:
            retry_at = parts.provider.next_at(now)
            parts.emit(TaskProviderFailed(str(error), max(0.0, (retry_at or now) - now)))
            return
        for event in happened:
            parts.emit(event)
        self._is_writing = True
        try:
            await self._open(self._settling.wanted(demand))
        finally:
            self._is_writing = False

    async def _open(self, demand: Sequence[Demand]) -> None:
        """Have the journal assign each demand its sequence number, and buffer the opened tasks."""
        parts = self._parts
        openings = [
            Opening(
                d.model,
                d.environment,
                d.due_at,
                d.interval_s,
                parts.environments[d.environment].spec.data_length,
                parts.samplers[d.model].model.weight,
                d.sequence,
                d.stage,
                d.slot_at,
            )
            for d in demand
            if d.model in parts.samplers and d.environment in parts.environments
        ]
        if not openings:
            return
        opened = await parts.journal.write(parts.journal.journal.open, openings)
        now = parts.now()
        orphans = []
        for opening, found in zip(openings, opened, strict=True):
            if self._matrix is not None and opening.sequence is not None:
                cells = self._taken if isinstance(found, AlreadyTaken) else self._own
                cells.add((opening.model, opening.environment, opening.sequence))
            if isinstance(found, AlreadyTaken):
                self._follow(found, now)
                continue
            result = self._needs_of(found)
            if result.model not in parts.samplers:  # its model has left the roster while the journal was writing
                orphans.append(result.task_id)
            elif self._goes_into_line(result):
                parts.batches.add(result.model, result, now)
        if orphans:
            await parts.journal.write(parts.journal.journal.withdraw, orphans)

    def _needs_of(self, task: Task) -> Task:
        """Return a task with the resources that it takes: a worker, a worker and a host's seat, or an outside job.

        This also sets the seed of its requests, which neither the journal nor the judge knows.
        """
        parts, sampler = self._parts, self._parts.samplers.get(task.model)
        if sampler is not None:
            length = parts.environments[task.environment].spec.data_length
            seed = request_seed(sampler.model, task, length, parts.settings.repeats)
            task = task if seed is None else replace(task, request_seed=seed)
        if task.environment in parts.outside:
            return replace(task, resources=_ONE_JOB)
        return replace(task, resources=_SEATED) if task.environment in self._seated else task

    def _goes_into_line(self, task: Task) -> bool:
        """Count a task as opened; return whether to enqueue it. A judged task goes to the stages instead."""
        self._parts.pairs.fell_due(task)
        self._settling.opened(task)
        if self._parts.is_traced:
            about = (task.task_id, task.model, task.environment, task.sequence, task.due_at, task.stage, task.attempt)
            self._parts.emit(TaskOpened(*about))
        if task.environment in self._judged:
            self._stages.pend(task)
        return task.environment not in self._judged

    def _follow(self, taken: AlreadyTaken, now: float) -> None:
        """Advance the sampler past a due time that another process took."""
        sampler = self._parts.samplers.get(taken.model)
        if sampler is not None and taken.last_due is not None and taken.environment in sampler.environments:
            sampler.was_taken(taken.environment, taken.last_due)
            self._parts.local.touch([taken.model], now)

    def _hold_back(self, now: float) -> None:
        """Stop samples from falling due that would only pile up before the judge or outside workers."""
        parts, nothing = self._parts, frozenset[str]()
        held = self._judged if self._stages.holds_back() else nothing
        held |= parts.outside if parts.holds_outside() else nothing
        for model, sampler in parts.samplers.items() if self._judged or parts.outside else ():
            if sampler.hold(held):
                parts.local.touch([model], now)

    def _flush(self, now: float) -> None:
        """Move ready buffers into the queue as far as it has room; the rest stays buffered, in order."""
        if not self._parts.room():
            return
        for model, tasks in self._parts.batches.take_ready(now, everything=self._parts.wants_buffered()):
            room = self._parts.room()
            if room:
                self._enqueue(model, tasks[:room], now)
            if room < len(tasks):
                self._parts.batches.put_back(model, tasks[room:], now)

    def _enqueue(self, model: str, tasks: Sequence[Task], now: float) -> None:
        parts = self._parts
        added = parts.dispatcher.enqueue(map(parts.note_answered, tasks), now)
        parts.enqueued_recently.add(now, added)
        for task in tasks:
            parts.ready_since[task.task_id] = now
        self._wake(model, now)
        size = parts.backlog()
        parts.emit(TasksEnqueued(model, added, size))
        changed = parts.backpressure.update(size, now)
        if changed is not None:
            parts.emit(changed)

    def _wake(self, model: str, now: float) -> None:
        """Wake an engine for queued samples; hold the model's sampler once enough of them wait for it."""
        parts = self._parts
        if parts.requests is None or (engines := parts.requests.engines) is None or engines.is_ready(model):
            return
        engines.look(model)
        sampler = parts.samplers.get(model)
        if sampler is not None and parts.dispatcher.queued(model) >= _ENOUGH:
            sampler.is_held = True
            parts.local.touch([model], now)

    def _wait_s(self) -> float | None:
        """Return the seconds until there is something to do; None if only a wake-up will bring it."""
        parts = self._parts
        now = parts.now()
        times = [
            self._health.next_at(),
            parts.batches.next_at() if parts.room() else None,
            parts.dispatcher.next_change_at(now),
        ]
        if self._may_ask():
            next_at = parts.provider.next_at(now)
            times.append(None if next_at is None else max(next_at, self._ask_at))
        return min((max(0.0, at - now) for at in times if at is not None), default=None)
