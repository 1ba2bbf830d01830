"""The seed's log lines, for those who look for them."""

from __future__ import annotations

import logging

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic.verl.worker_group import LOGGER
from headgate.elastic.worker import WorkerState

_log = logging.getLogger(LOGGER)


def log_event(event: Event) -> None:
    """Write what happened as the seed wrote it."""
    match event:
        case events.WorkerChanged(after=WorkerState.DRAINING):
            _log.info("Scaling down: draining worker %s", event.worker)
        case events.WorkerChanged(after=WorkerState.STARTING):
            _log.info("Scaling up: activating worker %s", event.worker)
        case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.INACTIVE):
            _log.info("Successfully drained and flushed worker %s", event.worker)
        case events.WorkerChanged(before=WorkerState.STARTING, after=WorkerState.FAILED):
            _log.error("Failed to scale up worker %s: %s", event.worker, event.reason)
        case events.WorkerChanged(before=WorkerState.DRAINING, after=WorkerState.FAILED):
            _log.error("Failed to flush cache for worker %s: %s", event.worker, event.reason)
        case events.WorkerChanged(after=WorkerState.FAILED):
            _log.error("Worker %s failed: %s", event.worker, event.reason)
        case _:
            pass
