"""Requests in a trace: their waits for admission, and the limits and cooldowns of each request key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.core import events
from headgate.telemetry.perfetto.scene import FIRST_TRACK, Draw, Group, Scene, forget_oldest
from headgate.telemetry.perfetto.task_tracks import TaskTracks, key_of
from headgate.telemetry.perfetto.trace_file import Fields, Place, number, seconds_us

_SAME_MOMENT_US: Final = 10_000.0
"""A refusal and the cut that follows from it are told within this time, in either order."""


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

    @property
    def drawn(self) -> Mapping[type[events.Event], Draw]:
        """What draws which event."""
        return {
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
        """Mark a refusal at its task and at its key, where the cut that follows from it will point back."""
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
        """Draw an arrow from a refusal to the cut that it caused, whichever of the two is told first."""
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
