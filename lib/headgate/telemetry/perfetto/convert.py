"""Reads files of events line by line and writes the trace that they make."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate.core import errors
from headgate.telemetry.perfetto.drawing import DRAWN_BY_NAME, NAMES_NOT_DRAWN, Canvas, other
from headgate.telemetry.perfetto.request_tracks import PlacementTracks, RequestTracks
from headgate.telemetry.perfetto.scene import Fields, Scene, TraceWriter

_log = logging.getLogger("headgate.telemetry")


class RunTrace:
    """Takes the events of one run in order and draws them; `close` draws what is still going on.

    Owned by one conversion. Times come in as the run's monotonic seconds, which do not jump when the machine's clock is
    set; an event without them (a note on dropped ones) counts by its wall time.
    """

    def __init__(self, writer: TraceWriter, run: str, *, begins_at: float, monotonic: float | None) -> None:
        scene = Scene(writer, run)
        self._canvas = Canvas(scene, RequestTracks(scene), PlacementTracks(writer))
        self._offset_s = begins_at - monotonic if monotonic is not None else None
        self._last = begins_at * 1e6

    def take(self, name: str, fields: Fields, monotonic: float | None, since_origin_s: float) -> float:
        """Draw an event; return its time in seconds since the trace's begin."""
        if monotonic is None:
            at = max(self._last, 0.0)
        else:
            if self._offset_s is None:
                self._offset_s = since_origin_s - monotonic
            at = max(0.0, (monotonic + self._offset_s) * 1e6)
        self._last = max(self._last, at)
        if name not in NAMES_NOT_DRAWN:
            DRAWN_BY_NAME.get(name, other)(self._canvas, fields, at, name)
        return at / 1e6

    def close(self) -> None:
        """Draw what is still going on, up to the last event."""
        self._canvas.requests.close(self._last)
        self._canvas.placement.close(self._last)
        self._canvas.scene.close(self._last)


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a conversion read and wrote.

    Attributes:
        events: lines that were read.
        unreadable: lines that are no event; they are left out.
        runs: campaigns in the file.
        seconds: from the first event to the last.
        written: events of the trace.
    """

    events: int
    unreadable: int
    runs: int
    seconds: float
    written: int


def convert_events(source: Path, output: Path, *, run_id: str = "") -> TraceSummary:
    """Write the trace of a file of events, of its rotated predecessors first, and return what was found.

    With a `run_id` only that run of the file is read.

    Memory is bounded by what was in flight at once, not by the length of the file. A file that is being written can be
    converted; what is still in flight then ends with the last event. A name that ends in `.gz` compresses the trace.

    Raises:
        InvalidInputError: if the source cannot be read, holds no event, or the output cannot be written.
    """
    files = event_files(source)
    if output.resolve() in {file.resolve() for file in files}:
        raise errors.InvalidInputError(
            f"the trace {output} would overwrite the events that it is made of", next_step="Name another file."
        )
    try:
        with _appearing(output) as path:
            with TraceWriter(path) as writer:
                summary = _convert(files, writer, run_id)
            if not summary.events:
                raise errors.InvalidInputError(
                    f"{source} holds no event of Headgate",
                    next_step="`headgate run --set events_file=events.jsonl` writes such a file.",
                )
    except (OSError, EOFError) as error:
        raise errors.InvalidInputError(f"trace {output} of {source} cannot be written: {error}") from error
    return summary


@contextmanager
def _appearing(output: Path) -> Iterator[Path]:
    """Give a path to write that takes the name `output` when all went well, and else leaves what was there.

    A device or a pipe is written as it is, and stays; so does a link.
    """
    if output.exists() and not output.is_file():
        yield output
        return
    place = output.resolve()
    partial = place.with_name(f".partial-{place.name}")
    try:
        yield partial
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)  # half a trace is of no use, and the disk may be full


def event_files(source: Path) -> list[Path]:
    """Return a file of events and those that it followed by rotation, the oldest first.

    Raises:
        InvalidInputError: if there is none.
    """
    if not source.is_file():
        raise errors.InvalidInputError(
            f"there is no file of events {source}",
            next_step="`headgate run --set events_file=events.jsonl` writes one.",
        )
    older: list[Path] = []
    while (rotated := source.with_name(f"{source.name}.{len(older) + 1}")).is_file():
        older.append(rotated)
    return [*reversed(older), source]


def _convert(files: list[Path], writer: TraceWriter, run_id: str) -> TraceSummary:
    runs = _Runs(writer)
    lines, unreadable, last = 0, 0, 0.0
    for line in _lines(files):
        read = _read(line)
        if read is None:
            unreadable += 1
            continue
        if run_id and read.get("run") != run_id:
            continue
        lines += 1
        last = max(last, runs.take(read))
    runs.close()
    if unreadable:
        _log.warning("%d lines are not events and were left out of the trace", unreadable)
    return TraceSummary(lines, unreadable, runs.count, last, writer.written)


class _Runs:
    """The traces of the runs in a file: one after the other, or beside each other when they wrote into one file."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._traces: dict[str, RunTrace] = {}
        self._origin: float | None = None
        self.count = 0

    def take(self, read: dict[str, Any]) -> float:
        run, wall, monotonic = str(read.get("run", "")), float(read["wall"]), read.get("monotonic")
        if self._origin is None:
            self._origin = wall
        trace = self._traces.get(run)
        if trace is not None and not run and read["event"] == "campaign_started":
            trace.close()  # lines without a run: each campaign begins another
            trace = None
        if trace is None:
            self.count += 1
            trace = self._traces[run] = RunTrace(
                self._writer, run, begins_at=max(0.0, wall - self._origin), monotonic=monotonic
            )
        return trace.take(read["event"], read["fields"], monotonic, wall - self._origin)

    def close(self) -> None:
        for trace in self._traces.values():
            trace.close()


def _lines(files: list[Path]) -> Iterator[bytes]:
    for file in files:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as opened:
            yield from opened


def _read(line: bytes) -> dict[str, Any] | None:
    """Return the event on a line; None when there is none, as after a cut."""
    try:
        read = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    is_event = (
        isinstance(read, dict)
        and isinstance(read.get("event"), str)
        and isinstance(read.get("fields"), dict)
        and isinstance(read.get("wall"), int | float)
        and isinstance(read.get("monotonic", 0.0), int | float)
    )
    return read if is_event else None
