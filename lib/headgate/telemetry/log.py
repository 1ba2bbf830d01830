"""Events as log lines of the stdlib logger `headgate`: seed 000's own lines, and `name key=value` for the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from headgate.core import events
from headgate.telemetry.fields import JsonValue, event_fields, event_name, printable
from headgate.telemetry.levels import SCHEDULING_LEVELS
from headgate.telemetry.stream import Handler, Recorded

LEVELS: Final[Mapping[type[events.Event], int]] = {
    events.Event: logging.INFO,
    **SCHEDULING_LEVELS,
    events.DuesForgiven: logging.DEBUG,
    events.TasksEnqueued: logging.DEBUG,
    events.TaskStarted: logging.DEBUG,
    events.RequestFinished: logging.DEBUG,
    events.RequestDelayed: logging.DEBUG,
    events.SampleAccepted: logging.DEBUG,
    events.TaskReturned: logging.DEBUG,
    events.AnswerJudged: logging.DEBUG,
    events.JudgementMissing: logging.DEBUG,
    events.ModelPaused: logging.WARNING,
    events.UsageMissing: logging.WARNING,
    events.QueueWarned: logging.WARNING,
    events.QueuePaused: logging.WARNING,
    events.RosterRefreshFailed: logging.WARNING,
    events.SampleRefused: logging.WARNING,
    events.StoreFailed: logging.WARNING,
    events.TaskProviderFailed: logging.WARNING,
    events.JournalBlocked: logging.ERROR,
    events.RowsQuarantined: logging.ERROR,
}
"""Event type -> level. What happens once per sample or request is DEBUG; `Event` stands for all others."""


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
        level = LEVELS.get(type(event), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        name, fields = event_name(type(event)), event_fields(event)
        extra = {"headgate": {"sequence": recorded.sequence, "event": name, "fields": fields}}
        for line in log_lines(event, name, fields):
            self._logger.log(level, "%s", line, extra=extra)


def log_lines(event: events.Event, name: str, fields: Mapping[str, JsonValue]) -> list[str]:
    """Return the lines that the log shows for `event`: mostly one.

    A paused model gets two: the seed's, which names it by its uid only, and ours with its key and last error.
    """
    seed_line = _SEED_LINES.get(type(event))
    if seed_line is None:
        return [key_values(name, fields)]
    if isinstance(event, events.ModelPaused):
        return [seed_line(event), key_values(name, fields)]
    return [seed_line(event)]


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


# The words of these lines are seed 000's compatibility surface: its users' log filters match on them.
def _status(event: events.StatusReported) -> str:
    return (
        f"[STATUS] samplers={event.samplers} (paused={event.paused}) task_queue={event.task_queue} "
        f"result_queue={event.result_queue} enqueued={event.enqueued} dequeued={event.dequeued}"
    )


def _queue_warned(event: events.QueueWarned) -> str:
    return f"[TaskQueue] WARNING: Queue size {event.size} exceeds warning threshold {event.threshold}"


def _queue_paused(event: events.QueuePaused) -> str:
    return f"[TaskQueue] PAUSED: Queue size {event.size} exceeds pause threshold {event.threshold}"


def _queue_resumed(event: events.QueueResumed) -> str:
    return f"[TaskQueue] RESUMED: Queue size {event.size} below resume threshold {event.threshold}"


def _model_paused(event: events.ModelPaused) -> str:
    errors = event.consecutive_errors
    return f"[MinerSampler] U{event.uid} paused for {event.pause_s:.0f}s due to Chutes errors ({errors} consecutive)"


_SEED_LINES: Final[Mapping[type[events.Event], Callable[[Any], str]]] = {
    events.StatusReported: _status,
    events.QueueWarned: _queue_warned,
    events.QueuePaused: _queue_paused,
    events.QueueResumed: _queue_resumed,
    events.ModelPaused: _model_paused,
}
