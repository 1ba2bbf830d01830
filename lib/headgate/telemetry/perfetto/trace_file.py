"""A file in the trace-event format, which Perfetto and chrome://tracing open."""

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
"""A group of tracks, which viewers call a process, and a track of it, which they call a thread."""

_MAX_US: Final = 1e15
"""Thirty years: beyond it a time is a defect of the file, and nanoseconds no longer fit a double."""

_MAX_SHOWN: Final = 2**53
"""Beyond it a viewer's numbers are no longer exact."""


class TraceWriter:
    """Writes one trace file. Nothing is kept but the open file and counters: a trace may be larger than memory.

    Times are microseconds since the trace's begin. Owned by one conversion; a context manager. A file whose name ends
    in `.gz` is compressed; viewers open it as it is.
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
        """Return the number of a new group of tracks; a lower `order` stands higher in the viewer."""
        self._groups += 1
        self._describe("process", (self._groups, 0), name, order)
        return self._groups

    def track(self, place: Place, name: str) -> None:
        """Name a track of a group; its number is its place."""
        self._describe("thread", place, name, place[1])

    def slice(self, place: Place, name: str, start: float, end: float, args: Fields) -> None:
        """Write something that lasted. Slices of one track lie within or beside each other, never across."""
        lasted = max(0.0, round(_us(end) - _us(start), 3))
        self._event("X", place, start, dur=lasted, cat="headgate", name=name, args=args)

    def span(
        self, group: int, category: str, name: str, start: float, end: float, args: Fields, identity: str = ""
    ) -> None:
        """Write something that lasted beside others of its kind: the viewer finds it a row."""
        common = {"cat": category, "name": name, "id2": {"local": identity or f"{name} {self.written}"}}
        self._event("b", (group, 0), start, **common, args=args)
        self._event("e", (group, 0), max(start, end), **common)

    def counter(self, group: int, name: str, at: float, values: Mapping[str, float]) -> None:
        """Write what a counter shows from now on."""
        self._event("C", (group, 0), at, name=name, args=values)

    def mark(self, place: Place, name: str, at: float, args: Fields, *, is_global: bool = False) -> None:
        """Write a moment."""
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
    """Return a time that a viewer shows: within the trace, and finite whatever a broken line says."""
    return round(min(max(at, 0.0), _MAX_US), 3) if at == at else 0.0  # noqa: PLR0124 - not a number differs from itself


def number(value: Any) -> float:
    """Return a number as a viewer can show it; 0 when it is none."""
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - not a number differs from itself
    return min(max(value, -_MAX_SHOWN), _MAX_SHOWN) if is_number else 0


def seconds_us(fields: Fields, name: str) -> float:
    """Return a field of seconds as microseconds; 0 when it holds no number."""
    return 1e6 * number(fields.get(name))


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
