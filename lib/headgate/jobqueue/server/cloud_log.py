"""Sends the log to Google Cloud Logging as well, with labels that tell the lines of jobs and users apart."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from headgate.core import redacted
from headgate.core.errors import MissingExtraError
from headgate.jobqueue.names import user_name

_log = logging.getLogger(__name__)

NAME: Final = "jobqueue"
"""The log's name there, the same as with the legacy protocol's server."""

_MOST_WAITING: Final = 10_000
_AT_ONCE: Final = 200
_STOP_S: Final = 10.0


class CloudLogger(Protocol):
    """The part of `google.cloud.logging.Logger` that is used."""

    def batch(self) -> Any:
        """Return something with `log_text` and `commit`."""


class CloudHandler(logging.Handler):
    """Passes lines to a thread that sends them in batches, so that logging never waits for the network.

    When the cloud is slower than the log, lines are dropped and counted; the count is sent as a line of its own.
    """

    def __init__(self, logger: CloudLogger, labels: Mapping[str, str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s [%(levelname)s] %(message)s"))
        self._logger = logger
        self._labels = dict(labels)
        self._lines: queue.Queue[tuple[str, str] | None] = queue.Queue(_MOST_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="headgate-cloud-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop and count it."""
        if record.name == __name__:
            return  # a warning about lines that could not be sent
        try:
            self._lines.put_nowait((redacted(self.format(record)), record.levelname))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Send what is queued, for at most `_STOP_S`, and stop; may be called twice."""
        if self._thread.is_alive():
            self._lines.put(None)
            self._thread.join(_STOP_S)
        super().close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            lines = [self._lines.get()]
            while len(lines) < _AT_ONCE and not self._lines.empty():
                lines.append(self._lines.get_nowait())
            is_open = None not in lines
            self._send([line for line in lines if line is not None])

    def _send(self, lines: list[tuple[str, str]]) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append((f"{dropped} dropped from the log: it grew faster than it could be sent", "WARNING"))
        if not lines:
            return
        try:
            batch = self._logger.batch()
            for text, severity in lines:
                batch.log_text(text, labels=self._labels, severity=severity)
            batch.commit()
        except Exception as error:  # noqa: BLE001 - library or network: reported; the local log has the lines
            _log.warning("%d lines were not sent to Google Cloud Logging: %s", len(lines), redacted(str(error)))


@contextmanager
def cloud_logging(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Send the process's log to Google Cloud Logging for as long as the context is open.

    Raises:
        MissingExtraError: if its client is not installed.
    """
    handler = CloudHandler(_cloud_logger(), labels_of(environ))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def labels_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of every line: the SLURM job (empty outside of one) and the user."""
    return {"job": environ.get("SLURM_JOB_ID", ""), "user": user_name(environ)}


def _cloud_logger() -> CloudLogger:
    try:
        from google.cloud import logging as cloud  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise MissingExtraError("Sending the log to Google Cloud Logging", "gcp") from error
    logger: CloudLogger = cloud.Client().logger(NAME)  # type: ignore[no-untyped-call]
    return logger
