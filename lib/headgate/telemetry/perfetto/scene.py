"""What the tracks of one run share: the writer, its groups of tracks, and who runs where."""

from __future__ import annotations

import gzip
import heapq
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

import orjson

Args = Mapping[str, Any]

MAX_US: Final = 1e15
"""Thirty years: beyond it a time is a defect of the file, and nanoseconds no longer fit a double."""


class TraceWriter:
    """Writes one trace file. Nothing is kept but the open file and counters: a trace may be larger than memory.

    Times are microseconds since the trace's begin. A process is a group of tracks in the viewer, a thread is a track.
    Owned by one conversion; a context manager. A file whose name ends in `.gz` is compressed; viewers open it as it is.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        opened: Any = gzip.open(path, "wb", compresslevel=5) if path.suffix == ".gz" else path.open("wb")  # noqa: SIM115
        self._file: IO[bytes] = self._stack.enter_context(opened)
        self.written = 0
        self._pids = 0
        self._flows = 0

    def __enter__(self) -> Self:
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        return self

    def __exit__(self, *error: object) -> None:
        self._file.write(b"\n]}\n")
        self._stack.close()

    def process(self, name: str, order: int) -> int:
        """Return the number of a new group of tracks; a lower `order` stands higher in the viewer."""
        self._pids += 1
        self._describe("process_name", self._pids, 0, {"name": name})
        self._describe("process_sort_index", self._pids, 0, {"sort_index": order})
        return self._pids

    def track(self, pid: int, tid: int, name: str) -> None:
        """Name a track of a group; its number is its place."""
        self._describe("thread_name", pid, tid, {"name": name})
        self._describe("thread_sort_index", pid, tid, {"sort_index": tid})

    def slice(self, pid: int, tid: int, name: str, start: float, end: float, args: Args) -> None:
        """Write something that lasted. Slices of one track lie within or beside each other, never across."""
        place = {"ph": "X", "pid": pid, "tid": tid, "ts": _us(start), "dur": max(0.0, round(_us(end) - _us(start), 3))}
        self._write({**place, "cat": "headgate", "name": name, "args": args})

    def span(self, pid: int, category: str, name: str, identity: str, start: float, end: float, args: Args) -> None:
        """Write something that lasted beside others of its kind: the viewer finds it a row."""
        common = {"pid": pid, "tid": 0, "cat": category, "name": name, "id2": {"local": identity}}
        self._write({"ph": "b", "ts": _us(start), **common, "args": args})
        self._write({"ph": "e", "ts": _us(max(start, end)), **common})

    def counter(self, pid: int, name: str, at: float, values: Mapping[str, float]) -> None:
        """Write what a counter shows from now on."""
        self._write({"ph": "C", "pid": pid, "tid": 0, "ts": _us(at), "name": name, "args": values})

    def mark(self, pid: int, tid: int, name: str, at: float, args: Args, *, is_global: bool = False) -> None:
        """Write a moment."""
        scope = "g" if is_global else "t"
        place = {"ph": "i", "s": scope, "pid": pid, "tid": tid, "ts": _us(at)}
        self._write({**place, "cat": "headgate", "name": name, "args": args})

    def flow(self, name: str, source: tuple[int, int, float], target: tuple[int, int, float]) -> None:
        """Write an arrow from the slice around one (group, track, time) to the slice around another."""
        self._flows += 1
        for phase, (pid, tid, at) in (("s", source), ("f", target)):
            binding = {"bp": "e"} if phase == "f" else {}
            place = {"ph": phase, "pid": pid, "tid": tid, "ts": _us(at), "id": self._flows}
            self._write({**place, **binding, "cat": "headgate", "name": name})

    def _describe(self, kind: str, pid: int, tid: int, args: Args) -> None:
        self._write({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})

    def _write(self, event: Mapping[str, Any]) -> None:
        self._file.write(b",\n" if self.written else b"\n")
        self._file.write(orjson.dumps(event))
        self.written += 1


def _us(at: float) -> float:
    """Return a time that a viewer shows: within the trace, and finite whatever a broken line says."""
    return round(min(max(at, 0.0), MAX_US), 3) if at == at else 0.0  # noqa: PLR0124 - not a number differs from itself


Fields = Mapping[str, Any]

MAX_OPEN: Final = 200_000
"""Tasks and waits remembered at once. Beyond it the oldest ends: its end was lost with events that were dropped."""

PARALLEL_TRACKS: Final = 1_000
"""Tracks of one slot are numbered this far apart: requests of one task that overlap lie on tracks beside it."""


_MAX_SHOWN: Final = 2**53
"""Beyond it a viewer's numbers are no longer exact."""


@dataclass(slots=True)
class Lanes:
    """Numbers from 0 on; each is held by one at a time. Pure."""

    _free: list[int] = field(default_factory=list)
    _next: int = 0

    def take(self) -> int:
        """Return the lowest number that nobody holds."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, lane: int) -> None:
        """Let a number be taken again."""
        heapq.heappush(self._free, lane)


def seconds_us(fields: Fields, name: str) -> float:
    """Return a field of seconds as microseconds; 0 when it holds no number."""
    return 1e6 * number(fields.get(name))


def number(value: Any) -> float:
    """Return a number as a viewer can show it; 0 when it is none."""
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - not a number differs from itself
    return min(max(value, -_MAX_SHOWN), _MAX_SHOWN) if is_number else 0


@dataclass(slots=True)
class Group:
    """The tracks of one model: a track per task in progress."""

    pid: int
    lanes: Lanes = field(default_factory=Lanes)
    named: set[int] = field(default_factory=set)
    in_flight: int = 0


@dataclass(slots=True)
class Running:
    """A task in progress, and where it is drawn; `ends` is when the last slice on each of its tracks ended."""

    task_id: str
    model: str
    lane: int
    start: float
    args: dict[str, Any]
    ends: dict[int, float] = field(default_factory=dict)
    name: str = "task"
    end: float | None = None
    is_complete: bool = False


class Scene:
    """Knows the groups of tracks of one run. Owned by its `RunTrace`. Times are microseconds of the trace."""

    def __init__(self, writer: TraceWriter, run: str) -> None:
        self.writer = writer
        self._run = run
        self.campaign = writer.process(f"campaign {run}".strip(), 0)
        self._named_tracks: dict[str, int] = {}
        self._groups: dict[str, Group] = {}
        self._keys: dict[str, int] = {}
        self.running: OrderedDict[str, Running] = OrderedDict()
        self.workers_busy = 0
        self._ready: OrderedDict[str, float] = OrderedDict()
        self._left: OrderedDict[str, Running] = OrderedDict()

    def track(self, name: str) -> int:
        """Return the track of the campaign's own group that is called `name`."""
        known = self._named_tracks.get(name)
        if known is None:
            known = self._named_tracks[name] = len(self._named_tracks) + 1
            self.writer.track(self.campaign, known, name)
        return known

    def group(self, model: str) -> Group:
        """Return the group of a model's tracks."""
        group = self._groups.get(model)
        if group is None:
            group = self._groups[model] = Group(self.writer.process(f"model {model}", 100 + len(self._groups)))
        return group

    def key(self, name: str) -> int:
        """Return the group of a request key's tracks."""
        pid = self._keys.get(name)
        if pid is None:
            pid = self._keys[name] = self.writer.process(f"requests {name}", 10 + min(len(self._keys), 80))
            self.writer.track(pid, 1, "limit")
        return pid

    def ready(self, task_id: str, at: float) -> None:
        """Remember when a task entered the queue."""
        self._ready[task_id] = at
        if len(self._ready) > MAX_OPEN:
            self._ready.popitem(last=False)

    def ready_since(self, task_id: str) -> float | None:
        """Return when a task that leaves the queue entered it, once; None when that is not known."""
        return self._ready.pop(task_id, None)

    def tell(self, task_id: str, name: str, args: Mapping[str, Any]) -> None:
        """Let the slice of a task in progress be called `name`, and say more."""
        task = self.running.get(task_id)
        if task is not None:
            task.name = name
            task.args |= args

    def begin(self, task_id: str, model: str, at: float, args: dict[str, Any], name: str = "task") -> None:
        """Give a task its track; one that was drawn already goes on."""
        if task_id in self.running:
            return
        self.end(task_id, at, {})  # an attempt before this one whose outcome was not told
        if len(self.running) >= MAX_OPEN:
            self.end(next(iter(self.running)), at, {"outcome": "its end is not in the file"})
        group = self.group(model)
        lane = group.lanes.take()
        self.running[task_id] = Running(task_id, model, lane, at, args, name=name)
        group.in_flight += 1
        self.workers_busy += 1
        self._count(group, at)

    def complete(self, task_id: str, name: str, args: Mapping[str, Any]) -> None:
        """Say how a task ended; it is drawn when its lease has ended, too."""
        task = self.running.get(task_id) or self._left.get(task_id)
        if task is None:
            return
        task.args |= args
        if "environment" in task.args:
            return  # a rollout: its sample names it
        task.name, task.is_complete = name, True
        if task_id in self._left:
            self.end(task_id, 0.0, {})

    def leave(self, task_id: str, at: float) -> None:
        """Free the track of a task whose lease has ended; it is drawn when its outcome is known."""
        task = self.running.get(task_id)
        if task is None:
            return
        if task.is_complete:
            self.end(task_id, at, {})
            return
        del self.running[task_id]
        task.end = max(at, task.start, *task.ends.values())
        self._free(task, task.end)
        self._left[task_id] = task
        if len(self._left) > MAX_OPEN:
            self._draw(self._left.popitem(last=False)[1], {}, None)

    def end(self, task_id: str, at: float, args: Mapping[str, Any], name: str | None = None) -> None:
        """Draw a task that has ended and free its track; one that did not begin in the file is left out."""
        task = self._left.pop(task_id, None)
        if task is None and (task := self.running.pop(task_id, None)) is not None:
            task.end = max(at, task.start, *task.ends.values())
            self._free(task, task.end)
        if task is not None:
            self._draw(task, args, name)

    def close(self, at: float) -> None:
        """Draw the tasks that have not ended, and those whose sample did not come."""
        for task_id in list(self._left):
            self.end(task_id, at, {})
        for task_id in list(self.running):
            self.end(task_id, at, {"outcome": "still running"})

    def within(self, task_id: str, name: str, start: float, end: float, args: Fields) -> tuple[int, int] | None:
        """Draw something within a task, beside it when it overlaps what is there; return its place."""
        task = self.running.get(task_id)
        if task is None:
            return None
        group = self.group(task.model)
        start = max(start, task.start)
        for parallel in range(PARALLEL_TRACKS):
            last = task.ends.get(parallel, start)
            if start >= last - 1_000.0:  # a millisecond of overlap is the delay of telling, not work in parallel
                start = max(start, last)
                break
        task.ends[parallel] = max(start, end)
        tid = self._tid(group, task.lane, parallel)
        self.writer.slice(group.pid, tid, name, start, max(start, end), args)
        return group.pid, tid

    def place_of(self, task_id: str) -> tuple[int, int] | None:
        """Return the track of a task in progress."""
        task = self.running.get(task_id)
        return None if task is None else (self.group(task.model).pid, self._tid(self.group(task.model), task.lane))

    def _draw(self, task: Running, args: Mapping[str, Any], name: str | None) -> None:
        assert task.end is not None, "a task is drawn when it has ended"
        group = self.group(task.model)
        tid = self._tid(group, task.lane)
        self.writer.slice(group.pid, tid, name or task.name, task.start, task.end, task.args | dict(args))

    def _free(self, task: Running, at: float) -> None:
        group = self.group(task.model)
        group.lanes.give_back(task.lane)
        group.in_flight -= 1
        self.workers_busy -= 1
        self._count(group, at)

    def _tid(self, group: Group, lane: int, parallel: int = 0) -> int:
        tid = (lane + 1) * PARALLEL_TRACKS + parallel
        if tid not in group.named:
            group.named.add(tid)
            self.writer.track(group.pid, tid, f"slot {lane + 1}" + (f" beside {parallel}" if parallel else ""))
        return tid

    def _count(self, group: Group, at: float) -> None:
        self.writer.counter(group.pid, "tasks in progress", at, {"tasks": group.in_flight})
        self.writer.counter(self.campaign, "workers busy", at, {"workers": self.workers_busy})
