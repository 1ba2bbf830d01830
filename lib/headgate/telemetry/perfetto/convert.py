"""Reads files of events line by line and draws their trace: how and where each event is drawn."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core import errors, events
from headgate.telemetry.fields import event_name
from headgate.telemetry.perfetto.trace_file import (
    FIRST_TRACK,
    Draw,
    Fields,
    Place,
    Scene,
    TraceWriter,
    number,
    seconds_us,
)
from headgate.telemetry.perfetto.tracks import PlacementTracks, RequestTracks, TaskTracks, key_of

_READY: Final = ("ready queue", "tasks", "queued")
_HELD: Final = (("slots held {limit}", "slots", "held"),)

_COUNTED: Final[Mapping[type[events.Event], tuple[tuple[str, str, str], ...]]] = {
    events.TasksEnqueued: (_READY,),
    events.ReadyEnqueued: (_READY,),
    events.RowGroupAdmitted: (("frontier", "row groups", "active"),),
    events.RowGroupAdmissionTargetChanged: (("frontier target", "row groups", "after"),),
    events.SchedulerHealthSnapshot: (
        _READY,
        ("frontier", "row groups", "active_row_groups"),
        ("frontier target", "row groups", "frontier_target"),
        ("deferred tasks", "tasks", "deferred"),
    ),
    events.HealthReported: (
        _READY,
        ("buffered tasks", "tasks", "buffered"),
        ("spooled samples", "samples", "spooled"),
    ),
    events.SlotsLeased: _HELD,
    events.SlotsReturned: _HELD,
    events.SlotsLost: _HELD,
}
"""Event -> the campaign's counters, with unit and field."""

_LASTED: Final[Mapping[type[events.Event], tuple[str, str, str]]] = {
    events.RowGroupCheckpointed: ("row groups", "row group", "seconds"),
    events.ModelResumed: ("model pauses", "paused", "paused_for_s"),
    events.QueueResumed: ("queue paused", "queue paused", "paused_for_s"),
    events.JournalRecovered: ("journal", "journal blocked", "blocked_for_s"),
    events.BatchStored: ("store", "batch stored", "seconds"),
}
"""Event -> the campaign's track, the name of the time span that it ends, and the field with its duration."""

_NOT_DRAWN: Final = (
    events.StatusReported,  # HealthReported has more
    events.TaskOpened,  # the queue wait is drawn when it ends
    events.RequestStarted,  # the attempt is drawn when it ends
    events.DependencyReady,  # the task is queued at the same time
    events.RetryRedispatched,  # likewise
    events.TaskSelected,  # its lease is drawn
    events.WorkerSpawned,  # likewise
    events.QueueEmpty,  # the counter of the queue shows it
)
"""Events that the trace omits, because another event draws the same."""

_ACROSS_ALL: Final = {"campaign_started", "campaign_stopping", "campaign_stopped", "events_dropped"}
"""Events that are marked across all tracks."""

_SUBJECTS: Final = {
    event_name(kind): kind.__module__.rpartition(".")[2]
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
} | {"events_dropped": "campaign"}
"""Name of an event -> the track of the campaign on which it is marked."""


class RunTrace:
    """Draws the events of one run in order; `close` draws what is still in progress.

    An unknown event is drawn as a mark on its subject, so that no event of a later version is lost.

    Owned by one conversion. Times are the run's monotonic seconds, which do not jump when the machine's clock is set;
    for an event without them (a note about dropped ones), its wall time counts.
    """

    def __init__(self, writer: TraceWriter, run: str, *, begins_at: float, monotonic: float | None) -> None:
        self._scene = Scene(writer, run)
        self._tasks = TaskTracks(self._scene)
        self._parts = (self._tasks, RequestTracks(self._scene, self._tasks), PlacementTracks(self._scene))
        drawn: dict[type[events.Event], Draw] = dict.fromkeys(_LASTED, self._lasted)
        drawn |= dict.fromkeys(_COUNTED, self._counted) | dict.fromkeys(_NOT_DRAWN, lambda *_: None)
        for part in self._parts:
            drawn |= part.drawn
        self._draw = {event_name(kind): draw for kind, draw in drawn.items()}
        self._counters = {event_name(kind): counters for kind, counters in _COUNTED.items()}
        self._spans = {event_name(kind): span for kind, span in _LASTED.items()}
        self._offset_s = begins_at - monotonic if monotonic is not None else None
        self._last = begins_at * 1e6

    def take(self, name: str, fields: Fields, monotonic: float | None, since_origin_s: float) -> float:
        """Draw an event; return its time in seconds since the start of the trace."""
        if monotonic is None:
            at = max(self._last, 0.0)
        else:
            if self._offset_s is None:
                self._offset_s = since_origin_s - monotonic
            at = max(0.0, (monotonic + self._offset_s) * 1e6)
        self._last = max(self._last, at)
        self._draw.get(name, self._marked)(fields, at, name)
        return at / 1e6

    def close(self) -> None:
        """Draw what is still in progress, up to the last event."""
        for part in self._parts:
            part.close(self._last)

    def _counted(self, fields: Fields, at: float, name: str) -> None:
        for counter, unit, field in self._counters[name]:
            self._count(counter.format(limit=fields.get("limit")), at, {unit: number(fields.get(field))})
        if name == "health_reported":
            for resource, units in (fields.get("resources") or {}).items():
                if isinstance(units, list) and len(units) == 2:
                    self._count(f"resource {resource}", at, {"in use": number(units[0]), "limit": number(units[1])})
            if fields.get("frontier_target") is not None:
                self._count("frontier target", at, {"tasks": number(fields["frontier_target"])})

    def _count(self, counter: str, at: float, values: Mapping[str, float]) -> None:
        self._scene.writer.counter(self._scene.campaign.number, counter, at, values)

    def _lasted(self, fields: Fields, at: float, name: str) -> None:
        track, said, seconds = self._spans[name]
        shown = f"{said} {fields['model']}" if "model" in fields else said
        group, _ = self._scene.track(self._scene.campaign, track)
        self._scene.writer.span(group, track, shown, max(0.0, at - seconds_us(fields, seconds)), at, fields)

    def _marked(self, fields: Fields, at: float, name: str) -> None:
        place = self._subject(fields, name)
        self._scene.writer.mark(place, name, at, fields, is_global=name in _ACROSS_ALL)

    def _subject(self, fields: Fields, name: str) -> Place:
        """Return the place of an event's subject: a request key, a pool, a task in progress, or the campaign."""
        if "provider" in fields:
            return self._scene.group("requests", key_of(fields)).number, FIRST_TRACK
        if "pool" in fields:
            return self._scene.group("pool", str(fields["pool"])).number, FIRST_TRACK
        place = self._tasks.place_of(str(fields.get("task_id")))
        subject = "tasks" if "task_id" in fields else _SUBJECTS.get(name, "other")
        return place or self._scene.track(self._scene.campaign, subject)


_log = logging.getLogger("headgate.telemetry")


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The result of a conversion.

    Attributes:
        unreadable: lines that are not events; they are skipped.
        seconds: time from the first event to the last.
    """

    events: int
    unreadable: int
    runs: int
    seconds: float
    written: int


def convert_events(source: Path, output: Path, *, run_id: str = "") -> TraceSummary:
    """Write the trace of a file of events, including its rotated predecessors, and return a summary.

    With a `run_id`, only that run is read.

    Memory is bounded by what was in flight at once, not by the length of the file. A file that is still being written
    can be converted; what is in flight then ends with the last event. A name that ends in `.gz` compresses the trace.

    Raises:
        InvalidInputError: if the source cannot be read, holds no event, or the output cannot be written.
    """
    files = event_files(source)
    if output.resolve() in {file.resolve() for file in files}:
        raise errors.InvalidInputError(
            f"the trace {output} would overwrite its source of events", next_step="Name another file."
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
    """Yield a path to write that is renamed to `output` on success; a failure leaves the old file unchanged.

    A device, pipe or link is written in place.
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
        partial.unlink(missing_ok=True)  # a partial trace is useless, and the disk may be full


def event_files(source: Path) -> list[Path]:
    """Return a file of events and its rotated predecessors, oldest first."""
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
    """Draw runs one after the other, or side by side if they wrote to the file at the same time."""
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
            traces.pop(run).close()  # lines without a run id: each start of a campaign begins a new run
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
    """Return the event on a line; None if it holds none, for example a truncated line."""
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
