"""The groups of tracks of one run: of the campaign, its request keys, its pools and its models."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.telemetry.perfetto.trace_file import Fields, Place, TraceWriter

Draw = Callable[[Fields, float, str], None]
"""Draws an event with these fields at a time (microseconds of the trace); the last argument is the event's name."""

MAX_OPEN: Final = 200_000
"""Tasks and waits remembered at once. Beyond it the oldest ends: its end was lost with events that were dropped."""

LOST: Final = "its end is not in the file"

FIRST_TRACK: Final = 1
"""Of a request key, where its limit is drawn, and of a pool, where its decisions are."""

_KINDS: Final = {"campaign": "", "requests": "limit", "pool": "decisions", "model": ""}
"""Kinds of groups in the viewer's order, and the name of their first track if they have one."""

_GROUPS_OF_A_KIND: Final = 1_000_000


@dataclass(slots=True)
class Group:
    """A group of tracks. Its lanes are numbers from 0 on, each of them held by one task or placement group at a time.

    Attributes:
        counts: what its counters show.
        tracks: their numbers by name.
        ends: when the last slice on a track ended.
    """

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    tracks: dict[str, int] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    _free_lanes: list[int] = field(default_factory=list)
    _lanes: int = 0

    def take_lane(self) -> int:
        """Return the lowest lane that nobody holds."""
        if self._free_lanes:
            return heapq.heappop(self._free_lanes)
        self._lanes += 1
        return self._lanes - 1

    def give_back(self, lane: int) -> None:
        """Let a lane be taken again."""
        heapq.heappush(self._free_lanes, lane)


class Scene:
    """Owned by a `RunTrace`. Times are microseconds of the trace."""

    def __init__(self, writer: TraceWriter, run: str) -> None:
        self.writer = writer
        self._groups: dict[tuple[str, str], Group] = {}
        self.campaign = self.group("campaign", run)

    def group(self, kind: str, name: str) -> Group:
        """Return the group of what is called `name`."""
        group = self._groups.get((kind, name))
        if group is None:
            order = list(_KINDS).index(kind) * _GROUPS_OF_A_KIND + len(self._groups)
            group = self._groups[kind, name] = Group(self.writer.group(f"{kind} {name}".strip(), order))
            if _KINDS[kind]:
                self.track(group, _KINDS[kind])
        return group

    def track(self, group: Group, name: str, track: int | None = None) -> Place:
        """Return the place of the track that is called `name`: a new one is `track`, or the next that has no name."""
        if name not in group.tracks:
            group.tracks[name] = len(group.tracks) + 1 if track is None else track
            self.writer.track((group.number, group.tracks[name]), name)
        return group.number, group.tracks[name]

    def count(self, group: Group, counter: str, unit: str, at: float, change: int) -> None:
        """Have a counter of a group show so many more."""
        group.counts[counter] += change
        self.writer.counter(group.number, counter, at, {unit: group.counts[counter]})


def forget_oldest(told: dict[str, Any]) -> None:
    """Keep `told` within `MAX_OPEN`."""
    if len(told) > MAX_OPEN:
        del told[next(iter(told))]
