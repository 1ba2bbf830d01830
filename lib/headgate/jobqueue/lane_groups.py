"""Which lanes a claim looks at: one of each group, however many lanes there are."""

from __future__ import annotations

import heapq
from itertools import count

from headgate.jobqueue.job import Lane, Place
from headgate.jobqueue.matching import Loads
from headgate.jobqueue.outcomes import ClaimRequest
from headgate.jobqueue.working_set import Lanes

_Entry = tuple[Place, int, Lane]
"""A lane in its group's heap: a place that is not behind its first job's; a number, smaller in older entries."""


class LaneGroups:
    """The lanes with jobs that can be claimed, by group; owned by the ledger's `Reservations`.

    A *group* is the lanes of one team and pool that the same open servers serve, and has the name of one of them. All
    have the same load, so the one whose first job has the first place is next.

    Invariant: each lane with pending jobs and an open server has one entry that counts, the one in `_listed`, in its
    group's heap, except for what `_refresh` has still to do. Other entries are dropped when they come first.
    """

    def __init__(self, lanes: Lanes, loads: Loads) -> None:
        self._lanes = lanes
        self._loads = loads
        self._heaps: dict[Lane, list[_Entry]] = {}
        self._listed: dict[str, dict[Lane, _Entry]] = {}  # by task
        self._numbers = count()

    def admitted(self, request: ClaimRequest) -> list[Lane]:
        """Return the groups that a request may claim from; if it names tasks, the lanes, which `first` knows apart."""
        self._refresh()
        teams, tasks, pools = request.teams, request.tasks, request.pools
        lanes = self._heaps if tasks is None else (lane for task in tasks for lane in self._listed.get(task, ()))
        return [one for one in lanes if (teams is None or one.team in teams) and (pools is None or one.pool in pools)]

    def wanted(self) -> set[tuple[str, str]]:
        """Return a pool and task for each kind of pending jobs that open servers tell apart."""
        self._refresh()
        return {(group.pool, group.task) for group in list(self._heaps) if self.first(group) is not None}

    def first(self, group: Lane) -> Lane | None:
        """Return the lane of a group whose first job has the first place, or None when the group has no jobs left."""
        heap = self._heaps.get(group, [])
        while heap:
            entry = place, _, lane = heap[0]
            listed = self._listed[lane.task]
            if listed.get(lane) is not entry:
                heapq.heappop(heap)
            elif not self._lanes.has_pending(lane):
                heapq.heappop(heap)
                del listed[lane]
            elif (now := self._lanes.first(lane).place) != place:
                listed[lane] = (now, next(self._numbers), lane)
                heapq.heapreplace(heap, listed[lane])
            else:
                return lane
        self._heaps.pop(group, None)
        return None

    def _refresh(self) -> None:
        """List the lanes that got jobs since the last time, and all of a pool whose servers have changed."""
        arrived, changed = self._lanes.arrived, self._loads.changed
        if changed:
            for group in [group for group in self._heaps if group.pool in changed]:
                for _, _, lane in self._heaps.pop(group):
                    self._listed[lane.task].pop(lane, None)
            arrived.update(lane for lane, _ in self._lanes.waiting() if lane.pool in changed)
            changed.clear()
        for lane in arrived:
            name = self._loads.group_of(lane)
            if name is None or not self._lanes.has_pending(lane):
                continue
            place, listed = self._lanes.earliest(lane), self._listed.setdefault(lane.task, {})
            if lane not in listed or place < listed[lane][0]:
                listed[lane] = (place, next(self._numbers), lane)
                heapq.heappush(self._heaps.setdefault(name, []), listed[lane])
        arrived.clear()

    def validate(self) -> None:
        """Assert the invariants."""
        for lane, _ in self._lanes.waiting():
            group, entry = self._loads.group_of(lane), self._listed.get(lane.task, {}).get(lane)
            if lane.pool not in self._loads.changed and lane not in self._lanes.arrived and (group or entry):
                assert group is not None and entry is not None and any(one is entry for one in self._heaps[group])  # noqa: PT018
                assert entry[0] <= self._lanes.first(lane).place, lane
