"""Requests in a trace: waits, attempts and back-offs within their tasks; limits and cooldowns per request key."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.telemetry.perfetto.scene import MAX_OPEN, Fields, Lanes, Scene, TraceWriter, number, seconds_us

DECISIONS_TRACK: Final = 1
"""The track of a pool that carries its marks; its placement groups follow."""

_ORDER: Final = 50
"""Pools stand between request keys and models in the viewer."""


@dataclass(slots=True)
class _Pool:
    pid: int
    lanes: Lanes = field(default_factory=Lanes)
    groups: dict[str, int] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    ends: dict[int, float] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0


@dataclass(slots=True)
class _Running:
    pool: str
    tid: int
    start: float
    args: dict[str, Any]


class PlacementTracks:
    """Draws who held which placement group, and who waited for one. Owned by a `RunTrace`."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._pools: dict[str, _Pool] = {}
        self._waiting: OrderedDict[str, tuple[str, float, dict[str, Any]]] = OrderedDict()
        self._running: OrderedDict[str, _Running] = OrderedDict()

    def queued(self, fields: Fields, at: float) -> None:
        """Remember since when a request stands in line."""
        request, name = str(fields.get("request")), str(fields.get("pool"))
        self._leave_line(request, at, "queued again")
        if len(self._waiting) >= MAX_OPEN:
            self._leave_line(next(iter(self._waiting)), at, "its end is not in the file")
        self._waiting[request] = (name, at, dict(fields))
        self._count_waiting(name, at, 1)

    def started(self, fields: Fields, at: float) -> None:
        """Draw the wait of a request, and begin its slice on the track of its group."""
        request, name = str(fields.get("request")), str(fields.get("pool"))
        self._leave_line(request, at, "started")
        self._end(request, at, {"outcome": "started again"})
        if len(self._running) >= MAX_OPEN:
            self._end(next(iter(self._running)), at, {"outcome": "its end is not in the file"})
        tid = self._track(name, str(fields.get("group")))
        self._running[request] = _Running(name, tid, at, dict(fields))
        self._count_running(name, at, 1)

    def ended(self, fields: Fields, at: float, name: str) -> None:
        """Draw what a request did, up to its end, its preemption or its loss; one that only waited leaves the line."""
        request = str(fields.get("request"))
        self._leave_line(request, at, name)
        if not self._end(request, at, {"ended_by": name, **fields}):
            self.told(fields, at, name)

    def group_removed(self, fields: Fields, at: float, name: str) -> None:
        """Give the track of a placement group to the next one that is made."""
        pool = self._pool(str(fields.get("pool")))
        tid = pool.groups.pop(str(fields.get("group")), None)
        if tid is not None:
            pool.lanes.give_back(tid - DECISIONS_TRACK - 1)
        self.told(fields, at, name)

    def told(self, fields: Fields, at: float, name: str) -> None:
        """Mark a moment of a pool."""
        self._writer.mark(self._pool(str(fields.get("pool"))).pid, DECISIONS_TRACK, name, at, fields)

    def close(self, at: float) -> None:
        """Draw what still runs and what still waits, up to the last event."""
        for request in list(self._waiting):
            self._leave_line(request, at, "still waiting")
        for request in list(self._running):
            self._end(request, at, {"ended_by": "still running"})

    def _leave_line(self, request: str, at: float, how: str) -> None:
        waiting = self._waiting.pop(request, None)
        if waiting is None:
            return
        name, since, args = waiting
        identity = f"{request} {self._writer.written}"
        pid = self._pool(name).pid
        self._writer.span(pid, "placement queue", f"{request} in line", identity, since, at, {**args, "left": how})
        self._count_waiting(name, at, -1)

    def _end(self, request: str, at: float, args: dict[str, Any]) -> bool:
        ran = self._running.pop(request, None)
        if ran is None:
            return False
        pool = self._pool(ran.pool)
        # Two holders of one group, as a file with lost lines may tell, lie after each other and never across.
        start = max(ran.start, pool.ends.get(ran.tid, 0.0))
        end = pool.ends[ran.tid] = max(at, start)
        self._writer.slice(pool.pid, ran.tid, request or "work", start, end, ran.args | args)
        self._count_running(ran.pool, at, -1)
        return True

    def _pool(self, name: str) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pid = self._writer.process(f"pool {name}", _ORDER + min(len(self._pools), 40))
            self._writer.track(pid, DECISIONS_TRACK, "decisions")
            pool = self._pools[name] = _Pool(pid)
        return pool

    def _track(self, name: str, group: str) -> int:
        pool = self._pool(name)
        tid = pool.groups.get(group)
        if tid is None:
            tid = pool.groups[group] = DECISIONS_TRACK + 1 + pool.lanes.take()
        if tid not in pool.named:
            pool.named.add(tid)
            self._writer.track(pool.pid, tid, f"placement group {tid - DECISIONS_TRACK}")
        return tid

    def _count_waiting(self, name: str, at: float, change: int) -> None:
        pool = self._pool(name)
        pool.waiting += change
        self._writer.counter(pool.pid, "waiting", at, {"requests": pool.waiting})

    def _count_running(self, name: str, at: float, change: int) -> None:
        pool = self._pool(name)
        pool.running += change
        self._writer.counter(pool.pid, "running", at, {"requests": pool.running})


LIMIT_TRACK: Final = 1
SAME_MOMENT_US: Final = 10_000.0
"""A refusal and the cut that follows from it are told within this time, in either order."""


@dataclass(slots=True)
class _Key:
    pid: int
    limit: int | None = None
    since: float = 0.0
    waiters: int = 0
    leases: OrderedDict[str, None] = field(default_factory=OrderedDict)
    refused_at: tuple[int, int, float] | None = None
    cut_at: float | None = None


class RequestTracks:
    """Draws requests and the limits that admit them. Owned by a `RunTrace`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._keys: dict[str, _Key] = {}
        self._delays: OrderedDict[str, tuple[float, float, Fields]] = OrderedDict()

    def wait_started(self, fields: Fields, at: float) -> None:
        """Count a request that waits for admission."""
        key = self._key(fields)
        key.waiters = max(key.waiters + 1, int(number(fields.get("waiters"))))
        self._scene.writer.counter(key.pid, "waiting", at, {"requests": key.waiters})

    def wait_ended(self, fields: Fields, at: float, how: str) -> None:
        """Draw a wait for admission that has ended."""
        key = self._key(fields)
        key.waiters = max(0, key.waiters - 1)
        self._scene.writer.counter(key.pid, "waiting", at, {"requests": key.waiters})
        start = at - seconds_us(fields, "waited_s")
        self._within(fields, f"wait for admission{how}", start, at)

    def lease_acquired(self, fields: Fields, at: float) -> None:
        """Count a request in flight."""
        key = self._key(fields)
        key.leases[str(fields.get("lease_id"))] = None
        if len(key.leases) > MAX_OPEN:
            key.leases.popitem(last=False)
        self._count(key, at)
        self._limit(key, int(number(fields.get("limit"))), at, {})

    def lease_released(self, fields: Fields, at: float) -> None:
        """Count a request that is in flight no longer."""
        key = self._key(fields)
        if key.leases.pop(str(fields.get("lease_id")), "") is None:
            self._count(key, at)

    def finished(self, fields: Fields, at: float) -> None:
        """Draw an attempt that has ended."""
        start = at - seconds_us(fields, "latency_s")
        attempt = fields.get("attempt") or ""
        self._within(fields, f"request {attempt} {fields.get('outcome', '')}".replace("  ", " "), start, at)

    def delayed(self, fields: Fields, at: float) -> None:
        """Remember a back-off: it is drawn when it has ended."""
        whose = _whose(fields)
        self._end_delay(whose, at)
        self._delays[whose] = (at, at + seconds_us(fields, "wait_s"), fields)
        if len(self._delays) > MAX_OPEN:
            self._delays.popitem(last=False)

    def rate_limited(self, fields: Fields, at: float) -> None:
        """Mark a refusal at its task and at its key, where the cut that follows from it will point back."""
        key = self._key(fields)
        place = self._scene.place_of(str(fields.get("task_id", "")))
        if place is not None:
            self._scene.writer.mark(*place, "429", at, fields)
            key.refused_at = (*place, at)
            self._point_at_cut(key)
        blocked_us = seconds_us(fields, "blocked_s")
        if blocked_us > 0:
            identity = f"cooldown {self._scene.writer.written}"
            self._scene.writer.span(key.pid, "cooldown", "cooldown", identity, at, at + blocked_us, fields)

    def limit_changed(self, fields: Fields, at: float) -> None:
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
            key.refused_at = None

    def told(self, name: str, fields: Fields, at: float) -> None:
        """Mark something that befell a key."""
        self._scene.writer.mark(self._key(fields).pid, LIMIT_TRACK, name, at, fields)

    def breaker_closed(self, fields: Fields, at: float) -> None:
        """Draw the time for which a breaker was open."""
        start = at - seconds_us(fields, "open_for_s")
        identity = f"breaker {self._scene.writer.written}"
        self._scene.writer.span(self._key(fields).pid, "breaker", "breaker open", identity, start, at, fields)

    def task_ends(self, task_id: str, at: float) -> None:
        """Draw the back-off that a task's end cut short."""
        self._end_delay(task_id, at)

    def close(self, at: float) -> None:
        """Draw what is still going on."""
        for whose in list(self._delays):
            self._end_delay(whose, at)
        for key in self._keys.values():
            if key.limit is not None:
                self._draw_limit(key, max(at, key.since + SAME_MOMENT_US), {})

    def _within(self, fields: Fields, name: str, start: float, end: float) -> None:
        self._end_delay(_whose(fields), start)
        if self._scene.within(str(fields.get("task_id", "")), name, start, end, fields) is None:
            identity = f"request {self._scene.writer.written}"
            pid = self._key(fields).pid if "provider" in fields else self._scene.group(str(fields.get("model"))).pid
            self._scene.writer.span(pid, "request", name, identity, start, end, fields)

    def _end_delay(self, whose: str, at: float) -> None:
        delay = self._delays.pop(whose, None)
        if delay is not None:
            start, planned, fields = delay
            self._scene.within(str(fields.get("task_id", "")), "back-off", start, max(start, min(planned, at)), fields)

    def _point_at_cut(self, key: _Key) -> None:
        """Draw an arrow from a refusal to the cut that it caused, whichever of the two is told first."""
        if key.refused_at is None or key.cut_at is None:
            return
        if abs(key.cut_at - key.refused_at[2]) < SAME_MOMENT_US:
            to = (key.pid, LIMIT_TRACK, max(key.cut_at, key.refused_at[2]))
            self._scene.writer.flow("429 cuts the limit", key.refused_at, to)
            key.refused_at = key.cut_at = None

    def _key(self, fields: Fields) -> _Key:
        parts = [str(fields[part]) for part in ("provider", "model", "domain") if fields.get(part)]
        name = " ".join(part for part in parts if part != "chat")
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(self._scene.key(name))
        return key

    def _count(self, key: _Key, at: float) -> None:
        self._scene.writer.counter(key.pid, "in flight", at, {"requests": len(key.leases)})

    def _limit(self, key: _Key, limit: int, at: float, args: Fields) -> None:
        if key.limit == limit:
            return
        if key.limit is not None:
            self._draw_limit(key, at, args)
        key.limit, key.since = limit, at
        self._scene.writer.counter(key.pid, "limit", at, {"requests": limit})

    def _draw_limit(self, key: _Key, at: float, args: Fields) -> None:
        if at > key.since:
            self._scene.writer.slice(key.pid, LIMIT_TRACK, f"limit {key.limit}", key.since, at, args)


def _whose(fields: Fields) -> str:
    """Return what a back-off belongs to: its task, which asks one thing at a time, or else its request."""
    return str(fields.get("task_id") or fields.get("request_id") or "")
