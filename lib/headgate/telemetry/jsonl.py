"""Events as JSON lines in a file: bounded memory, a writer thread, rotation by size."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core import errors, events
from headgate.telemetry.backlog import Backlog
from headgate.telemetry.fields import event_fields, event_name
from headgate.telemetry.stream import Handler, Recorded

_log = logging.getLogger("headgate.telemetry")
_BATCH: Final = 500
"""Events per write: large enough that a write costs little per event, small enough that a failed one loses little."""


class JsonlSink(Backlog[Recorded[Any]]):
    """Appends one JSON object per event to `path`; `path.1` is the file before it, and so on up to `keep`.

    Memory is bounded by `queue_events`: when the writer cannot keep up, or the disk is full, events are dropped,
    counted in `dropped`, logged once per outage, and noted in the file by an `events_dropped` line when writing works
    again. Every line in a file is complete: a partial write is rolled back.

    With a `run_id`, every line names its run, since a file may hold several.

    Owned by the event stream; lives until `close`.

    Raises:
        InvalidSettingError: if the file cannot be opened for writing.
    """

    def __init__(
        self, path: Path, *, run_id: str = "", max_bytes: int = 64_000_000, keep: int = 5, queue_events: int = 10_000
    ) -> None:
        if max_bytes < 1 or keep < 1:
            raise ValueError(f"max_bytes and keep must be >= 1 (got {max_bytes}, {keep})")
        super().__init__(type(self).__name__, queue_events, close_within_s=5.0)
        self._path = path
        self._run = {"run": run_id} if run_id else {}
        self._max_bytes = max_bytes
        self._keep = keep
        self._reported = 0
        """Number of dropped events already noted in the file."""
        self._failing = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _opened(path)
        except OSError as error:
            raise errors.InvalidSettingError(
                f"events cannot be written to {path} ({error.strerror})", next_step="Choose a file that can be written."
            ) from error
        self._thread.start()
        self.handlers: Mapping[type[events.Event], Handler] = {events.Event: self._put}

    def _work(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._next()
            if batch or self.dropped > self._reported:
                self._write(batch)
        os.close(self._file)

    def _next(self) -> tuple[list[Recorded[Any]], bool]:
        """Return the next batch, and whether it is the last; waits for the first item."""
        batch: list[Recorded[Any]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == _BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _write(self, batch: list[Recorded[Any]]) -> None:
        lines = self._lines(batch)
        taken = len(lines)
        unreported = self.dropped - self._reported
        if unreported:
            lines.insert(0, self._dropped_line(batch[0].wall if batch else time.time(), unreported))
        try:
            self._append(b"".join(lines))
        except OSError as error:
            self._drop(taken)
            if not self._failing:
                _log.warning("events cannot be written to %s (%s); they are dropped until it works", self._path, error)
            self._failing = True
            return
        if self._failing:
            _log.warning("events are written to %s again; %d were dropped", self._path, unreported)
        self._failing = False
        self._reported += unreported

    def _lines(self, batch: list[Recorded[Any]]) -> list[bytes]:
        lines = []
        for recorded in batch:
            try:
                lines.append(self._line(recorded))
            except Exception:  # noqa: BLE001 - the boundary around one event: the writer goes on with the next
                self._drop(1)
                _log.exception("an event cannot be written as JSON: %s", type(recorded.event).__name__)
        return lines

    def _append(self, data: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and size + len(data) > self._max_bytes:
            self._rotate()
            size = 0
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            with contextlib.suppress(OSError):  # the write's own error is the one to report
                os.ftruncate(self._file, size)
            raise

    def _rotate(self) -> None:
        if self._path.exists():  # missing after a rotation whose last step failed, so that no file is moved twice
            for number in range(self._keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._numbered(number).replace(self._numbered(number + 1))
            self._path.replace(self._numbered(1))
        old, self._file = self._file, _opened(self._path)
        os.close(old)

    def _line(self, recorded: Recorded[Any]) -> bytes:
        document = {
            "sequence": recorded.sequence,
            "wall": recorded.wall,
            "monotonic": recorded.monotonic,
            **self._run,
            "event": event_name(type(recorded.event)),
            "fields": event_fields(recorded.event),
        }
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)

    def _dropped_line(self, wall: float, events_dropped: int) -> bytes:
        note = {"wall": wall, **self._run, "event": "events_dropped", "fields": {"events": events_dropped}}
        return orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _opened(path: Path) -> int:
    # Events name a campaign's models and errors, so only owner and group may read them. Non-blocking, since opening a
    # pipe without a reader would block; writing may block, on the writer's thread.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
    os.set_blocking(file, True)
    return file
