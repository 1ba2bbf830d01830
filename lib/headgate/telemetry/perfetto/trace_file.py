"""A file in the trace-event format of Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

import orjson

Fields = Mapping[str, Any]

Place = tuple[int, int]
"""A group of tracks, which viewers call a process, and one of its tracks, which they call a thread."""

_MAX_US: Final = 1e15
"""Thirty years: a later time is a defect of the file, and its nanoseconds do not fit in a double."""

_MAX_SHOWN: Final = 2**53
"""A viewer's numbers are exact up to here."""


class TraceWriter:
    """Writes one trace file. Keeps only the open file and counters, since a trace may be larger than memory.

    Times are microseconds since the start of the trace. Owned by one conversion; a context manager. A file whose name
    ends in `.gz` is compressed; viewers can open it directly.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        opened: Any = gzip.open(path, "wb", compresslevel=5) if path.suffix == ".gz" else path.open("wb")  # noqa: SIM115
        self._file: IO[bytes] = self._stack.enter_context(opened)
        self.written = 0
        self._groups = 0
        self._flows = 0

    def __enter__(self) -> Self:
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        return self

    def __exit__(self, *error: object) -> None:
        self._file.write(b"\n]}\n")
        self._stack.close()

    def group(self, name: str, order: int) -> int:
        """Return the number of a new group of tracks; a lower `order` is shown higher in the viewer."""
        self._groups += 1
        self._describe("process", (self._groups, 0), name, order)
        return self._groups

    def track(self, place: Place, name: str) -> None:
        """Name a track of a group; its number is its place."""
        self._describe("thread", place, name, place[1])

    def slice(self, place: Place, name: str, start: float, end: float, args: Fields) -> None:
        """Write a time span on a track. Slices of one track are nested or disjoint, never overlapping."""
        lasted = max(0.0, round(_us(end) - _us(start), 3))
        self._event("X", place, start, dur=lasted, cat="headgate", name=name, args=args)

    def span(
        self, group: int, category: str, name: str, start: float, end: float, args: Fields, identity: str = ""
    ) -> None:
        """Write a time span that may overlap others of its kind: the viewer assigns it a row."""
        common = {"cat": category, "name": name, "id2": {"local": identity or f"{name} {self.written}"}}
        self._event("b", (group, 0), start, **common, args=args)
        self._event("e", (group, 0), max(start, end), **common)

    def counter(self, group: int, name: str, at: float, values: Mapping[str, float]) -> None:
        """Write a counter's values from a time on."""
        self._event("C", (group, 0), at, name=name, args=values)

    def mark(self, place: Place, name: str, at: float, args: Fields, *, is_global: bool = False) -> None:
        """Write an instant event."""
        self._event("i", place, at, s="g" if is_global else "t", cat="headgate", name=name, args=args)

    def flow(self, name: str, source: tuple[Place, float], target: tuple[Place, float]) -> None:
        """Write an arrow from the slice around one place and time to the slice around another."""
        self._flows += 1
        self._event("s", *source, id=self._flows, cat="headgate", name=name)
        self._event("f", *target, bp="e", id=self._flows, cat="headgate", name=name)

    def _describe(self, kind: str, place: Place, name: str, order: int) -> None:
        for what, args in ((f"{kind}_name", {"name": name}), (f"{kind}_sort_index", {"sort_index": order})):
            self._write({"ph": "M", "pid": place[0], "tid": place[1], "name": what, "args": args})

    def _event(self, phase: str, place: Place, at: float, **more: Any) -> None:
        self._write({"ph": phase, "pid": place[0], "tid": place[1], "ts": _us(at), **more})

    def _write(self, event: Fields) -> None:
        self._file.write(b",\n" if self.written else b"\n")
        self._file.write(orjson.dumps(event))
        self.written += 1


def _us(at: float) -> float:
    """Return a time that a viewer can show: clamped to the trace, and finite whatever a broken line contains."""
    return round(min(max(at, 0.0), _MAX_US), 3) if at == at else 0.0  # noqa: PLR0124 - nan differs from itself


def number(value: Any) -> float:
    """Return a number that a viewer can show; 0 if the value is not a number."""
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - nan differs from itself
    return min(max(value, -_MAX_SHOWN), _MAX_SHOWN) if is_number else 0


def seconds_us(fields: Fields, name: str) -> float:
    """Return a field in seconds as microseconds; 0 if it is not a number."""
    return 1e6 * number(fields.get(name))


Draw = Callable[[Fields, float, str], None]
"""Draws an event with these fields at a time (microseconds of the trace); the last argument is the event's name."""

MAX_OPEN: Final = 200_000
"""Maximum open tasks and waits. Beyond it the oldest ends, since its end was lost with dropped events."""

LOST: Final = "its end is not in the file"

FIRST_TRACK: Final = 1
"""The track of a request key's limit, and of a pool's decisions."""

_KINDS: Final = {"campaign": "", "requests": "limit", "pool": "decisions", "model": ""}
"""Kinds of groups in the viewer's order, and the name of their first track if they have one."""

_GROUPS_OF_A_KIND: Final = 1_000_000


@dataclass(slots=True)
class Group:
    """A group of tracks. Its lanes are numbered from 0, each held by one task or placement group at a time.

    Attributes:
        tracks: numbers of the tracks by name.
        ends: end of the last slice by track.
    """

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    tracks: dict[str, int] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    _free_lanes: list[int] = field(default_factory=list)
    _lanes: int = 0

    def take_lane(self) -> int:
        """Return the lowest free lane."""
        if self._free_lanes:
            return heapq.heappop(self._free_lanes)
        self._lanes += 1
        return self._lanes - 1

    def give_back(self, lane: int) -> None:
        """Free a lane."""
        heapq.heappush(self._free_lanes, lane)


class Scene:
    """The groups and tracks of one run. Owned by a `RunTrace`. Times are microseconds of the trace."""

    def __init__(self, writer: TraceWriter, run: str) -> None:
        self.writer = writer
        self._groups: dict[tuple[str, str], Group] = {}
        self.campaign = self.group("campaign", run)

    def group(self, kind: str, name: str) -> Group:
        """Return the group with this kind and name, creating it on first use."""
        group = self._groups.get((kind, name))
        if group is None:
            order = list(_KINDS).index(kind) * _GROUPS_OF_A_KIND + len(self._groups)
            group = self._groups[kind, name] = Group(self.writer.group(f"{kind} {name}".strip(), order))
            if _KINDS[kind]:
                self.track(group, _KINDS[kind])
        return group

    def track(self, group: Group, name: str, track: int | None = None) -> Place:
        """Return the place of the track `name`; a new track gets the number `track`, or the next free one."""
        if name not in group.tracks:
            group.tracks[name] = len(group.tracks) + 1 if track is None else track
            self.writer.track((group.number, group.tracks[name]), name)
        return group.number, group.tracks[name]

    def count(self, group: Group, counter: str, unit: str, at: float, change: int) -> None:
        """Change a group's counter by `change`."""
        group.counts[counter] += change
        self.writer.counter(group.number, counter, at, {unit: group.counts[counter]})


def forget_oldest(told: dict[str, Any]) -> None:
    """Keep `told` within `MAX_OPEN`."""
    if len(told) > MAX_OPEN:
        del told[next(iter(told))]
