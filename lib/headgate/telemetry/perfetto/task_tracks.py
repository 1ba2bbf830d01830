"""Tasks in a trace: a track for each that is in progress, with its attempts and back-offs within it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core import events
from headgate.telemetry.perfetto.scene import LOST, MAX_OPEN, Draw, Group, Scene, forget_oldest
from headgate.telemetry.perfetto.trace_file import Fields, Place, seconds_us

_PARALLEL_TRACKS: Final = 1_000
"""Tracks of one slot are numbered this far apart: requests of one task that overlap lie on tracks beside it."""

_DELAY_OF_TELLING_US: Final = 1_000.0
"""So much overlap of two attempts is no work in parallel."""

_SHOWN_OF_A_SAMPLE: Final = (
    "score", "success", "error_kind", "error", "turns", "attempts", "request_wait_s", "why"
)  # fmt: skip


@dataclass(slots=True)
class _Task:
    """A task and where it is drawn; `ends` is when the last slice on each of its tracks ended."""

    group: Group
    lane: int
    start: float
    args: dict[str, Any]
    name: str
    ends: dict[int, float] = field(default_factory=dict)
    end: float = 0.0
    is_complete: bool = False


class TaskTracks:
    """Draws tasks, and what they wait for, by model. Owned by a `RunTrace`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._ready: dict[str, float] = {}
        self._running: dict[str, _Task] = {}
        self._left: dict[str, _Task] = {}
        """Tasks whose lease has ended, and whose outcome is not told yet."""
        self._delays: dict[str, tuple[float, float, Fields]] = {}

    @property
    def drawn(self) -> Mapping[type[events.Event], Draw]:
        """What draws which event."""
        return {
            events.ReadyEnqueued: self._enqueued,
            events.TaskLeaseAcquired: self._leased,
            events.TaskStarted: self._started,
            events.TaskLeaseReleased: self._lease_returned,
            events.TaskCompleted: self._completed,
            events.SampleAccepted: self._accepted,
            events.TaskReturned: self._without_sample,
            events.TaskDeferred: self._without_sample,
            events.RequestFinished: self._attempted,
            events.RequestDelayed: self._delayed,
        }

    def place_of(self, task_id: str) -> Place | None:
        """Return the track of a task in progress."""
        task = self._running.get(task_id)
        return None if task is None else self._place(task)

    def within(self, fields: Fields, name: str, start: float, end: float) -> None:
        """Draw something within the task of an event, beside it when it overlaps what is there.

        Without a task in progress it is drawn beside others of its request key, or else of its model.
        """
        self._end_delay(_whose(fields), start)
        task = self._running.get(str(fields.get("task_id", "")))
        if task is not None:
            self._draw_within(task, name, start, end, fields)
            return
        group = self._scene.group("model", str(fields.get("model")))
        if "provider" in fields:
            group = self._scene.group("requests", key_of(fields))
        self._scene.writer.span(group.number, "request", name, start, end, fields)

    def close(self, at: float) -> None:
        """Draw the tasks that have not ended, and those whose sample did not come."""
        for whose in list(self._delays):
            self._end_delay(whose, at)
        for task_id in list(self._left):
            self._end(task_id, at, {})
        for task_id in list(self._running):
            self._end(task_id, at, {"outcome": "still running"})

    def _enqueued(self, fields: Fields, at: float, _: str) -> None:
        self._ready[str(fields.get("task_id"))] = at
        forget_oldest(self._ready)

    def _leased(self, fields: Fields, at: float, _: str) -> None:
        task_id, group = str(fields.get("task_id")), self._group(fields)
        if (since := self._ready.pop(task_id, None)) is not None:
            self._queued(group, task_id, since, at)
        self._begin(task_id, group, at, fields, str(fields.get("stage") or "task"))

    def _started(self, fields: Fields, at: float, _: str) -> None:
        task_id, group = str(fields.get("task_id")), self._group(fields)
        task = self._running.get(task_id)
        if task is not None:
            task.name = f"{fields.get('environment')}"
            task.args |= fields
            return
        self._queued(group, task_id, max(0.0, at - seconds_us(fields, "queue_wait_s")), at)
        self._begin(task_id, group, at, fields, "task")

    def _lease_returned(self, fields: Fields, at: float, _: str) -> None:
        """Free the track of a task; it is drawn when its outcome is known."""
        task_id = str(fields.get("task_id"))
        self._end_delay(task_id, at)
        task = self._running.get(task_id)
        if task is None:
            return
        if task.is_complete:
            self._end(task_id, at, {})
            return
        self._left[task_id] = self._freed(task_id, at)
        if len(self._left) > MAX_OPEN:
            self._draw(self._left.pop(next(iter(self._left))), {})

    def _completed(self, fields: Fields, _: float, __: str) -> None:
        """Note how a task ended; it is drawn when its lease has ended, too."""
        task_id = str(fields.get("task_id"))
        task = self._running.get(task_id) or self._left.get(task_id)
        if task is None:
            return
        task.args["outcome"] = fields.get("outcome")
        if "environment" in task.args:
            return  # a rollout: its sample names it
        task.name, task.is_complete = f"{fields.get('stage')} {fields.get('outcome')}", True
        if task_id in self._left:
            self._end(task_id, 0.0, {})

    def _accepted(self, fields: Fields, at: float, _: str) -> None:
        task_id = str(fields.get("task_id"))
        running = self._running.get(task_id)
        ended = at if running is None else min(at, running.start + seconds_us(fields, "latency_s"))
        self._end_delay(task_id, ended)
        shown = {name: fields.get(name) for name in _SHOWN_OF_A_SAMPLE}
        self._end(task_id, ended, shown, f"{fields.get('environment')} {fields.get('sequence')}")

    def _without_sample(self, fields: Fields, at: float, name: str) -> None:
        task_id = str(fields.get("task_id"))
        self._end_delay(task_id, at)
        self._end(task_id, at, fields, f"{fields.get('environment')} {name.removeprefix('task_')}")

    def _attempted(self, fields: Fields, at: float, _: str) -> None:
        attempt = fields.get("attempt") or ""
        name = f"request {attempt} {fields.get('outcome', '')}".replace("  ", " ")
        self.within(fields, name, at - seconds_us(fields, "latency_s"), at)

    def _delayed(self, fields: Fields, at: float, _: str) -> None:
        """Remember a back-off: it is drawn when it has ended."""
        whose = _whose(fields)
        self._end_delay(whose, at)
        self._delays[whose] = (at, at + seconds_us(fields, "wait_s"), fields)
        forget_oldest(self._delays)

    def _end_delay(self, whose: str, at: float) -> None:
        start, planned, fields = self._delays.pop(whose, (0.0, 0.0, {}))
        if (task := self._running.get(str(fields.get("task_id", "")))) is not None:
            self._draw_within(task, "back-off", start, max(start, min(planned, at)), fields)

    def _group(self, fields: Fields) -> Group:
        return self._scene.group("model", str(fields.get("model") or fields.get("group") or ""))

    def _queued(self, group: Group, task_id: str, since: float, at: float) -> None:
        self._scene.writer.span(group.number, "queue", "queued", since, at, {"task_id": task_id}, task_id)

    def _begin(self, task_id: str, group: Group, at: float, args: Fields, name: str) -> None:
        """Give a task its track; one that was drawn already goes on."""
        if task_id in self._running:
            return
        self._end(task_id, at, {})  # an attempt before this one whose outcome was not told
        if len(self._running) >= MAX_OPEN:
            self._end(next(iter(self._running)), at, {"outcome": LOST})
        self._running[task_id] = _Task(group, group.take_lane(), at, dict(args), name)
        self._count(group, at, 1)

    def _end(self, task_id: str, at: float, args: Fields, name: str = "") -> None:
        """Draw a task that has ended and free its track; one that did not begin in the file is left out."""
        if task_id in self._left:
            self._draw(self._left.pop(task_id), args, name)
        elif task_id in self._running:
            self._draw(self._freed(task_id, at), args, name)

    def _freed(self, task_id: str, at: float) -> _Task:
        task = self._running.pop(task_id)
        task.end = max(at, task.start, *task.ends.values())
        task.group.give_back(task.lane)
        self._count(task.group, task.end, -1)
        return task

    def _draw(self, task: _Task, args: Fields, name: str = "") -> None:
        shown = task.args | dict(args)
        self._scene.writer.slice(self._place(task), name or task.name, task.start, task.end, shown)

    def _draw_within(self, task: _Task, name: str, start: float, end: float, args: Fields) -> None:
        start = max(start, task.start)
        for parallel in range(_PARALLEL_TRACKS):
            last = task.ends.get(parallel, start)
            if start >= last - _DELAY_OF_TELLING_US:
                start = max(start, last)
                break
        task.ends[parallel] = max(start, end)
        self._scene.writer.slice(self._place(task, parallel), name, start, max(start, end), args)

    def _place(self, task: _Task, parallel: int = 0) -> Place:
        name = f"slot {task.lane + 1}" + (f" beside {parallel}" if parallel else "")
        return self._scene.track(task.group, name, (task.lane + 1) * _PARALLEL_TRACKS + parallel)

    def _count(self, group: Group, at: float, change: int) -> None:
        self._scene.count(group, "tasks in progress", "tasks", at, change)
        self._scene.count(self._scene.campaign, "workers busy", "workers", at, change)


def key_of(fields: Fields) -> str:
    """Return the name of the request key that an event is about."""
    parts = [str(fields[part]) for part in ("provider", "model", "domain") if fields.get(part)]
    return " ".join(part for part in parts if part != "chat")


def _whose(fields: Fields) -> str:
    """Return what a back-off belongs to: its task, which asks one thing at a time, or else its request."""
    return str(fields.get("task_id") or fields.get("request_id") or "")
