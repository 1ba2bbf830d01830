"""Events as log lines of the stdlib logger `headgate`: sentences for a few, and `name key=value` for the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

from headgate.core import events
from headgate.telemetry.fields import JsonValue, duration, event_fields, event_name, printable, safe_text
from headgate.telemetry.stream import Handler, Recorded

_LONG_S: Final = 60.0
"""A rate limit that blocks a model for this long is logged as a warning, since nothing else shows why samples wait."""


class LogSink:
    """Writes events to a logger. Stateless; for a disabled level it costs only the check."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("headgate")
        self.handlers: Mapping[type[events.Event], Handler] = {events.Event: self._write}

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, recorded: Recorded[Any]) -> None:
        event = recorded.event
        is_long = isinstance(event, events.RequestRateLimited) and event.blocked_s >= _LONG_S
        level = logging.WARNING if is_long else event.log_level
        if not self._logger.isEnabledFor(level):
            return
        name, fields = event_name(type(event)), event_fields(event)
        extra = {"headgate": {"sequence": recorded.sequence, "event": name, "fields": fields}}
        self._logger.log(level, "%s", log_line(event, name, fields), extra=extra)


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
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
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
    events.ModelUnscored: "{0.model}: none of its last {0.samples} samples has a score; the last error: {0.last_error}",
    events.ModelGivenUp: "{0.model} given up: its service failed through {0.pauses} pauses; the last: {0.last_error}",
}
