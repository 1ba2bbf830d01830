"""Placement groups in a trace: tracks per pool, one per placement group, what ran on it, and who waited."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.telemetry.perfetto.scene import MAX_OPEN, Fields, Lanes
from headgate.telemetry.perfetto.writer import TraceWriter

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
