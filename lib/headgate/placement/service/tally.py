"""Counts of what happened, under ScheduleMesh's keys, and the latest events."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.core import events
from headgate.core.events import Event
from headgate.placement.group import Group, GroupState
from headgate.placement.service.values import Told

KEPT_EVENTS: Final = 10_000
_RECENT: Final = 10
_ALLOCATED: Final = frozenset({GroupState.HELD, GroupState.QUARANTINED})


class Tally:
    """Counts preemptions and keeps the latest events. Owned by the service; `as_meta` is journalled with it."""

    def __init__(self, written: Mapping[str, Any] | None = None) -> None:
        written = written or {}
        self.total = int(written.get("total", 0))
        self.by_reason: dict[str, int] = dict(written.get("by_reason", {}))
        self.recent: deque[dict[str, Any]] = deque(written.get("recent", ()), maxlen=_RECENT)
        self._events: deque[Told] = deque(maxlen=KEPT_EVENTS)
        self._number = 0

    def take(self, event: Event, wall: float) -> bool:
        """Count an event; return whether the counts have changed."""
        self._number += 1
        fields = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
        self._events.append(Told(self._number, wall, type(event).__name__, fields))
        if not isinstance(event, events.WorkPreempted):
            return False
        self.total += 1
        self.by_reason[event.reason] = self.by_reason.get(event.reason, 0) + 1
        self.recent.append({"timestamp": wall, "task_id": event.request, "preemptor_task_id": event.by} | fields)
        return True

    def since(self, number: int) -> tuple[Told, ...]:
        """Return the events after a number, in order; the oldest may have been dropped."""
        return tuple(told for told in self._events if told.number > number)

    def as_meta(self) -> dict[str, Any]:
        """Return what is journalled."""
        return {"total": self.total, "by_reason": self.by_reason, "recent": list(self.recent)}

    def stats(self, running: int) -> dict[str, Any]:
        """Return the counts of preemption."""
        cross = self.by_reason.get("cross_pool_preemption", 0)
        return {
            "total_preemptions": self.total,
            "same_pool_preemptions": self.total - cross,
            "cross_pool_preemptions": cross,
            "preemptions_by_reason": dict(self.by_reason),
            "running_tasks": running,
            "recent_preemptions": list(self.recent),
        }


def pool_stats(pool: str, groups: Iterable[Group]) -> dict[str, Any]:
    """Return the counts of one pool's groups."""
    theirs = [group for group in groups if group.pool == pool]
    states = [group.state for group in theirs]
    return {
        "pool_name": pool,
        "total_pgs": len(theirs),
        "high_priority_pgs": sum(group.reserved is not None for group in theirs),
        "dynamic_pgs": sum(group.reserved is None for group in theirs),
        "allocated_pgs": sum(state in _ALLOCATED for state in states),
        "available_pgs": states.count(GroupState.FREE),
        "total_reuse_count": sum(max(0, group.uses - 1) for group in theirs),
        "by_status": {state.value: states.count(state) for state in dict.fromkeys(states)},
    }
