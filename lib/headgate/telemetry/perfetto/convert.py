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
from headgate.telemetry.perfetto.drawing import RunTrace
from headgate.telemetry.perfetto.trace_file import TraceWriter

_log = logging.getLogger("headgate.telemetry")


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a conversion read and wrote.

    Attributes:
        unreadable: lines that are no event; they are left out.
        seconds: from the first event to the last.
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
    """Return a file of events and those that it followed by rotation, the oldest first."""
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
    """Draw runs one after the other, or beside each other when they wrote into one file."""
    traces: dict[str, RunTrace] = {}
    origin: float | None = None
    lines, unreadable, runs, last = 0, 0, 0, 0.0
    for line in _lines(files):
        read = _read(line)
        if read is None:
            unreadable += 1
            continue
        run, wall, monotonic = str(read.get("run", "")), float(read["wall"]), read.get("monotonic")
        if run_id and read.get("run") != run_id:
            continue
        lines += 1
        origin = wall if origin is None else origin
        if not run and read["event"] == "campaign_started" and run in traces:
            traces.pop(run).close()  # lines without a run: each campaign begins another
        if run not in traces:
            runs += 1
            traces[run] = RunTrace(writer, run, begins_at=max(0.0, wall - origin), monotonic=monotonic)
        last = max(last, traces[run].take(read["event"], read["fields"], monotonic, wall - origin))
    for trace in traces.values():
        trace.close()
    if unreadable:
        _log.warning("%d lines are not events and were left out of the trace", unreadable)
    return TraceSummary(lines, unreadable, runs, last, writer.written)


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
