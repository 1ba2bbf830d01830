"""Tracks of a trace: tasks in progress, requests and their limits, and placement groups and their holders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core import events
from headgate.telemetry.perfetto.trace_file import (
    FIRST_TRACK,
    LOST,
    MAX_OPEN,
    Draw,
    Fields,
    Group,
    Place,
    Scene,
    forget_oldest,
    number,
    seconds_us,
)

_PARALLEL_TRACKS: Final = 1_000
"""Distance between the track numbers of two slots, which leaves room for overlapping requests of one task."""

_DELAY_OF_TELLING_US: Final = 1_000.0
"""Two attempts that overlap by at most this are not parallel, but reported late."""

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
        """Tasks whose lease has ended, but whose outcome has not been reported yet."""
        self._delays: dict[str, tuple[float, float, Fields]] = {}
        self.drawn: Mapping[type[events.Event], Draw] = {
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
        """Draw a time span within the task of an event, on a parallel track if it overlaps another one.

        Without a task in progress, draw it with others of its request key, or else of its model.
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
        """Draw the tasks that have not ended, and those without a sample."""
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
            return  # a rollout, which its sample names
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
        """Remember a back-off, which is drawn when it ends."""
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
        """Give a task its track; a task that already has one continues."""
        if task_id in self._running:
            return
        self._end(task_id, at, {})  # a previous attempt whose outcome was not reported
        if len(self._running) >= MAX_OPEN:
            self._end(next(iter(self._running)), at, {"outcome": LOST})
        self._running[task_id] = _Task(group, group.take_lane(), at, dict(args), name)
        self._count(group, at, 1)

    def _end(self, task_id: str, at: float, args: Fields, name: str = "") -> None:
        """Draw a task that has ended and free its track; one that did not begin in the file is skipped."""
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
    """Return the owner of a back-off: its task, which sends one request at a time, or else its request."""
    return str(fields.get("task_id") or fields.get("request_id") or "")


_SAME_MOMENT_US: Final = 10_000.0
"""A refusal and the resulting cut of the limit are reported within this time, in either order."""


@dataclass(slots=True)
class _Key:
    group: Group
    limit: int | None = None
    since: float = 0.0
    leases: dict[str, None] = field(default_factory=dict)
    refused: tuple[Place, float] | None = None
    cut_at: float | None = None


class RequestTracks:
    """Draws requests and the limits that admit them. Owned by a `RunTrace`."""

    def __init__(self, scene: Scene, tasks: TaskTracks) -> None:
        self._scene = scene
        self._tasks = tasks
        self._keys: dict[str, _Key] = {}
        self.drawn: Mapping[type[events.Event], Draw] = {
            events.RequestWaitStarted: self._wait_started,
            events.RequestWaitCompleted: self._wait_ended,
            events.RequestWaitTimedOut: self._wait_ended,
            events.RequestWaitCancelled: self._wait_ended,
            events.RequestLeaseAcquired: self._lease_acquired,
            events.RequestLeaseReleased: self._lease_released,
            events.RequestRateLimited: self._rate_limited,
            events.RequestLimitDecreased: self._limit_changed,
            events.RequestLimitIncreased: self._limit_changed,
            events.RequestCeilingRecovered: self._limit_changed,
            events.RequestFullyRecovered: self._limit_changed,
            events.BreakerClosed: self._breaker_closed,
        }

    def close(self, at: float) -> None:
        """Draw the limits that are in force."""
        for key in self._keys.values():
            if key.limit is not None:
                self._draw_limit(key, max(at, key.since + _SAME_MOMENT_US), {})

    def _wait_started(self, fields: Fields, at: float, _: str) -> None:
        group = self._key(fields).group
        waiting = group.counts["waiting"]
        change = max(waiting + 1, int(number(fields.get("waiters")))) - waiting
        self._scene.count(group, "waiting", "requests", at, change)

    def _wait_ended(self, fields: Fields, at: float, name: str) -> None:
        group = self._key(fields).group
        self._scene.count(group, "waiting", "requests", at, -1 if group.counts["waiting"] else 0)
        how = name.removeprefix("request_wait_").replace("_", " ")
        shown = "wait for admission" if how == "completed" else f"wait for admission: {how}"
        self._tasks.within(fields, shown, at - seconds_us(fields, "waited_s"), at)

    def _lease_acquired(self, fields: Fields, at: float, _: str) -> None:
        key = self._key(fields)
        key.leases[str(fields.get("lease_id"))] = None
        forget_oldest(key.leases)
        self._count_leases(key, at)
        self._limit(key, int(number(fields.get("limit"))), at, {})

    def _lease_released(self, fields: Fields, at: float, _: str) -> None:
        key = self._key(fields)
        if key.leases.pop(str(fields.get("lease_id")), "") is None:
            self._count_leases(key, at)

    def _rate_limited(self, fields: Fields, at: float, _: str) -> None:
        """Mark a refusal at its task and at its key, from where an arrow will lead to the resulting cut."""
        key = self._key(fields)
        place = self._tasks.place_of(str(fields.get("task_id", "")))
        if place is not None:
            self._scene.writer.mark(place, "429", at, fields)
            key.refused = (place, at)
            self._point_at_cut(key)
        blocked_us = seconds_us(fields, "blocked_s")
        if blocked_us > 0:
            self._scene.writer.span(key.group.number, "cooldown", "cooldown", at, at + blocked_us, fields)

    def _limit_changed(self, fields: Fields, at: float, _: str) -> None:
        """Draw the new limit, with an arrow from the refusal that caused it."""
        key = self._key(fields)
        if key.limit is None:
            key.limit, key.since = int(number(fields.get("before"))), at
        before, after = key.limit, int(number(fields.get("after")))
        self._limit(key, after, at, fields)
        if after < before:
            key.cut_at = at
            self._point_at_cut(key)
        else:
            key.refused = None

    def _breaker_closed(self, fields: Fields, at: float, _: str) -> None:
        start = at - seconds_us(fields, "open_for_s")
        self._scene.writer.span(self._key(fields).group.number, "breaker", "breaker open", start, at, fields)

    def _point_at_cut(self, key: _Key) -> None:
        """Draw an arrow from a refusal to the resulting cut, whichever of the two is reported first."""
        if key.refused is None or key.cut_at is None:
            return
        refused_at = key.refused[1]
        if abs(key.cut_at - refused_at) < _SAME_MOMENT_US:
            cut = ((key.group.number, FIRST_TRACK), max(key.cut_at, refused_at))
            self._scene.writer.flow("429 cuts the limit", key.refused, cut)
            key.refused = key.cut_at = None

    def _key(self, fields: Fields) -> _Key:
        name = key_of(fields)
        if name not in self._keys:
            self._keys[name] = _Key(self._scene.group("requests", name))
        return self._keys[name]

    def _count_leases(self, key: _Key, at: float) -> None:
        self._scene.writer.counter(key.group.number, "in flight", at, {"requests": len(key.leases)})

    def _limit(self, key: _Key, limit: int, at: float, args: Fields) -> None:
        if key.limit == limit:
            return
        if key.limit is not None:
            self._draw_limit(key, at, args)
        key.limit, key.since = limit, at
        self._scene.writer.counter(key.group.number, "limit", at, {"requests": limit})

    def _draw_limit(self, key: _Key, at: float, args: Fields) -> None:
        if at > key.since:
            place = (key.group.number, FIRST_TRACK)
            self._scene.writer.slice(place, f"limit {key.limit}", key.since, at, args)


@dataclass(slots=True)
class _Request:
    pool: Group
    since: float
    args: dict[str, Any]
    place: Place = (0, 0)


class PlacementTracks:
    """Draws requests for placement groups by pool. Owned by a `RunTrace`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._waiting: dict[str, _Request] = {}
        self._running: dict[str, _Request] = {}
        self._lanes: dict[tuple[int, str], int] = {}
        self.drawn: Mapping[type[events.Event], Draw] = {
            events.WorkQueued: self._queued,
            events.WorkStarted: self._started,
            events.WorkEnded: self._ended,
            events.WorkPreempted: self._ended,
            events.WorkLost: self._ended,
            events.GroupRemoved: self._group_removed,
        }

    def close(self, at: float) -> None:
        """Draw what is still running or waiting, up to the last event."""
        for request in list(self._waiting):
            self._leave_line(request, at, "still waiting")
        for request in list(self._running):
            self._end(request, at, {"ended_by": "still running"})

    def _queued(self, fields: Fields, at: float, _: str) -> None:
        request, pool = str(fields.get("request")), self._pool(fields)
        self._leave_line(request, at, "queued again")
        if len(self._waiting) >= MAX_OPEN:
            self._leave_line(next(iter(self._waiting)), at, LOST)
        self._waiting[request] = _Request(pool, at, dict(fields))
        self._scene.count(pool, "waiting", "requests", at, 1)

    def _started(self, fields: Fields, at: float, _: str) -> None:
        request, pool = str(fields.get("request")), self._pool(fields)
        self._leave_line(request, at, "started")
        self._end(request, at, {"outcome": "started again"})
        if len(self._running) >= MAX_OPEN:
            self._end(next(iter(self._running)), at, {"outcome": LOST})
        key = (pool.number, str(fields.get("group")))
        if key not in self._lanes:
            self._lanes[key] = pool.take_lane()
        lane = self._lanes[key] + 1
        place = self._scene.track(pool, f"placement group {lane}", FIRST_TRACK + lane)
        self._running[request] = _Request(pool, at, dict(fields), place)
        self._scene.count(pool, "running", "requests", at, 1)

    def _ended(self, fields: Fields, at: float, name: str) -> None:
        """Draw a request up to its end, preemption or loss; one that only waited leaves the queue."""
        request = str(fields.get("request"))
        self._leave_line(request, at, name)
        if not self._end(request, at, {"ended_by": name, **fields}):
            self._mark(fields, at, name)

    def _group_removed(self, fields: Fields, at: float, name: str) -> None:
        """Free the track of a placement group for the next one."""
        pool = self._pool(fields)
        lane = self._lanes.pop((pool.number, str(fields.get("group"))), None)
        if lane is not None:
            pool.give_back(lane)
        self._mark(fields, at, name)

    def _mark(self, fields: Fields, at: float, name: str) -> None:
        self._scene.writer.mark((self._pool(fields).number, FIRST_TRACK), name, at, fields)

    def _leave_line(self, request: str, at: float, how: str) -> None:
        waited = self._waiting.pop(request, None)
        if waited is not None:
            args = {**waited.args, "left": how}
            name = f"{request} in line"
            self._scene.writer.span(waited.pool.number, "placement queue", name, waited.since, at, args)
            self._scene.count(waited.pool, "waiting", "requests", at, -1)

    def _end(self, request: str, at: float, args: Fields) -> bool:
        ran = self._running.pop(request, None)
        if ran is None:
            return False
        # If lost lines suggest that two holders of one group overlap, draw them one after the other.
        start = max(ran.since, ran.pool.ends.get(ran.place[1], 0.0))
        end = ran.pool.ends[ran.place[1]] = max(at, start)
        self._scene.writer.slice(ran.place, request or "work", start, end, ran.args | dict(args))
        self._scene.count(ran.pool, "running", "requests", at, -1)
        return True

    def _pool(self, fields: Fields) -> Group:
        return self._scene.group("pool", str(fields.get("pool")))
