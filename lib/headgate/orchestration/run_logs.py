"""What the library logs, shown with the flow run that it belongs to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headgate.orchestration.run_state import run_logger


class _ToRun(logging.Handler):
    """Passes records on to a run's logger, which sends them to the API with the run's id, from whatever thread."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log what the record says."""
        self._logger.log(record.levelno, "%s", record.getMessage(), exc_info=record.exc_info)


@contextmanager
def library_logs_in_run() -> Iterator[None]:
    """Send what the library logs to the current flow run while the context lasts."""
    logger = logging.getLogger("headgate")
    level, propagates = logger.level, logger.propagate
    handler = _ToRun(run_logger())
    logger.addHandler(handler)
    logger.propagate = False  # the run's logger writes to the console as well
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)
