"""Requests in a trace: waits, attempts and back-offs within their tasks; limits and cooldowns per request key."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from headgate.telemetry.perfetto.scene import MAX_OPEN, Fields, Scene, number, seconds_us

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
