"""The trace-event format (JSON), written as it is made: processes, tracks, slices, counters, marks, flows."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from contextlib import ExitStack
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
