"""Logging setup: one handler on stderr whose formatter removes secrets and escape sequences."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import orjson

from headgate.core import redacted
from headgate.telemetry.fields import printable, safe_text

_HANDLER_NAME: Final = "headgate-log"
_FORMAT: Final = "%(asctime)s %(levelname)-8s [%(name)s] %(message)s"
_LINE_LIMIT_CHARS: Final = 8_000
_TRACEBACK_LIMIT_CHARS: Final = 40_000


def setup_logging(verbosity: int = 1, json: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Send the process's log to `stream` (stderr by default) and return the handler; another call replaces it.

    Args:
        verbosity: 0 shows warnings and errors, 1 also events (INFO), 2 every sample and request (DEBUG), 3 or more also
            DEBUG lines of libraries, which otherwise show only warnings.
        json: one JSON object per line instead of text.
        stream: where to write.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(JsonFormatter() if json else SafeFormatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    for former in [other for other in root.handlers if other.get_name() == _HANDLER_NAME]:
        root.removeHandler(former)  # a stream handler does not buffer, so there is nothing to flush
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbosity >= 3 else logging.WARNING)
    ours = logging.WARNING if verbosity <= 0 else logging.INFO if verbosity == 1 else logging.DEBUG
    logging.getLogger("headgate").setLevel(ours)
    return handler


class SafeFormatter(logging.Formatter):
    """One printable line per record, without secrets; a traceback keeps only its line breaks."""

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
    # Unlike logging, this does not cache it in `record.exc_text`: another handler's formatter may not redact it.
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _safe_block(text: str) -> str:
    safe = redacted(text, limit_chars=_TRACEBACK_LIMIT_CHARS)
    return "\n".join(printable(line) for line in safe.split("\n"))
