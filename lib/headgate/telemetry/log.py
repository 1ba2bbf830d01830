"""Events as log lines of the logger `headgate`, and where log lines go and how they look."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import orjson

from headgate.core import events, redacted
from headgate.telemetry.fields import JsonValue, duration, event_fields, event_name, printable, safe_text
from headgate.telemetry.stream import Handler, Recorded


class LogSink:
    """Writes events to a logger. Holds nothing; costs a level check for what the logger does not want."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("headgate")

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """Every event."""
        return {events.Event: self._write}

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, recorded: Recorded[Any]) -> None:
        event = recorded.event
        if not self._logger.isEnabledFor(event.log_level):
            return
        name, fields = event_name(type(event)), event_fields(event)
        extra = {"headgate": {"sequence": recorded.sequence, "event": name, "fields": fields}}
        self._logger.log(event.log_level, "%s", log_line(event, name, fields), extra=extra)


def log_line(event: events.Event, name: str, fields: Mapping[str, JsonValue]) -> str:
    """Return the line that the log shows for `event`."""
    sentence = _SENTENCES.get(type(event))
    if sentence is None:
        return key_values(name, fields)
    return safe_text(sentence.format(event, pause=duration(getattr(event, "pause_s", 0.0))))


def key_values(name: str, fields: Mapping[str, JsonValue]) -> str:
    """Return `name key=value …`; a value with spaces, quotes or `=` stands in JSON quotes, None is left out."""
    pairs = (f"{key}={_value(value)}" for key, value in fields.items() if value is not None)
    return printable(" ".join((name, *pairs)))


def _value(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ",".join(_value(item) for item in value) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}:{_value(item)}" for key, item in value.items()) or "-"
    text = str(value)
    if text and not any(character in text for character in ' "=,'):
        return text
    return orjson.dumps(text).decode()


# The words of the first four lines are those of the system that Headgate replaces: log filters match on them.
_SENTENCES: Final[Mapping[type[events.Event], str]] = {
    events.StatusReported: "[STATUS] samplers={0.samplers} (paused={0.paused}) task_queue={0.task_queue} "
    "result_queue={0.result_queue} enqueued={0.enqueued} dequeued={0.dequeued}",
    events.QueueWarned: "[TaskQueue] WARNING: Queue size {0.size} exceeds warning threshold {0.threshold}",
    events.QueuePaused: "[TaskQueue] PAUSED: Queue size {0.size} exceeds pause threshold {0.threshold}",
    events.QueueResumed: "[TaskQueue] RESUMED: Queue size {0.size} below resume threshold {0.threshold}",
    events.ModelPaused: "{0.model} paused for {pause} after {0.consecutive_errors} service errors in a row; the last: "
    "{0.last_error}",
    events.ModelGivenUp: "{0.model} given up: its service failed through {0.pauses} pauses; the last: {0.last_error}",
}


_HANDLER_NAME: Final = "headgate-log"
_FORMAT: Final = "%(asctime)s %(levelname)-8s [%(name)s] %(message)s"
_LINE_LIMIT_CHARS: Final = 8_000
_TRACEBACK_LIMIT_CHARS: Final = 40_000


def setup_logging(verbosity: int = 1, json: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Send the process's log to `stream` (stderr unless given) and return the handler; calling it again replaces it.

    Args:
        verbosity: 0 shows warnings and errors, 1 also what happens (INFO), 2 every sample and request (DEBUG),
            3 or more the DEBUG lines of the libraries as well. Libraries show warnings otherwise.
        json: one JSON object per line in place of text.
        stream: where to write.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(JsonFormatter() if json else SafeFormatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    for former in [other for other in root.handlers if other.get_name() == _HANDLER_NAME]:
        root.removeHandler(former)  # a stream handler writes through: there is nothing to flush
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbosity >= 3 else logging.WARNING)
    ours = logging.WARNING if verbosity <= 0 else logging.INFO if verbosity == 1 else logging.DEBUG
    logging.getLogger("headgate").setLevel(ours)
    return handler


class SafeFormatter(logging.Formatter):
    """One printable line per record without secrets; a traceback keeps its line breaks and nothing else."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return the line of `record`."""
        record.message = safe_text(record.getMessage(), limit_chars=_LINE_LIMIT_CHARS)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of `record` and its traceback."""
        record.asctime = self.formatTime(record, self.datefmt)
        text = self.formatMessage(record)
        for block in (_traceback(self, record), self.formatStack(record.stack_info) if record.stack_info else ""):
            if block:
                text += "\n" + _safe_block(block)
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per record: `time` (UTC), `level`, `logger`, `message`, and an event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of `record`."""
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": safe_text(record.getMessage(), limit_chars=_LINE_LIMIT_CHARS),
        }
        event = getattr(record, "headgate", None)
        if isinstance(event, dict):
            document |= event
        traceback = _traceback(self, record)
        if traceback:
            document["traceback"] = _safe_block(traceback)
        return orjson.dumps(document, default=str).decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    # Not cached in `record.exc_text`, as logging does: another handler's formatter may not redact.
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _safe_block(text: str) -> str:
    safe = redacted(text, limit_chars=_TRACEBACK_LIMIT_CHARS)
    return "\n".join(printable(line) for line in safe.split("\n"))
