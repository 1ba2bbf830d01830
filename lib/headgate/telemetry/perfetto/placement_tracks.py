"""Placement groups in a trace: who held which, and who waited for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.core import events
from headgate.telemetry.perfetto.scene import FIRST_TRACK, LOST, MAX_OPEN, Draw, Group, Scene
from headgate.telemetry.perfetto.trace_file import Fields, Place


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

    @property
    def drawn(self) -> Mapping[type[events.Event], Draw]:
        """What draws which event."""
        return {
            events.WorkQueued: self._queued,
            events.WorkStarted: self._started,
            events.WorkEnded: self._ended,
            events.WorkPreempted: self._ended,
            events.WorkLost: self._ended,
            events.GroupRemoved: self._group_removed,
        }

    def close(self, at: float) -> None:
        """Draw what still runs and what still waits, up to the last event."""
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
        """Draw what a request did, up to its end, its preemption or its loss; one that only waited leaves the line."""
        request = str(fields.get("request"))
        self._leave_line(request, at, name)
        if not self._end(request, at, {"ended_by": name, **fields}):
            self._mark(fields, at, name)

    def _group_removed(self, fields: Fields, at: float, name: str) -> None:
        """Give the track of a placement group to the next one that is made."""
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
        # Two holders of one group, as a file with lost lines may tell, lie after each other and never across.
        start = max(ran.since, ran.pool.ends.get(ran.place[1], 0.0))
        end = ran.pool.ends[ran.place[1]] = max(at, start)
        self._scene.writer.slice(ran.place, request or "work", start, end, ran.args | dict(args))
        self._scene.count(ran.pool, "running", "requests", at, -1)
        return True

    def _pool(self, fields: Fields) -> Group:
        return self._scene.group("pool", str(fields.get("pool")))
