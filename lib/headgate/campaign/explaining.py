"""Where a task of a campaign is, beyond what its dispatcher knows: with its provider, in the journal, in the spool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.config import Settings
from headgate.core import Task, TaskId
from headgate.core.errors import NotFoundError
from headgate.core.status import RequestStatus
from headgate.scheduling import Explanation
from headgate.storage import JournalThread, TaskState


def with_requests(found: Explanation, model: str, requests: Sequence[RequestStatus], now: float) -> Explanation:
    """Return what is known of a running task with what the requests of its model wait for, if they do.

    A provider that is merely full holds nothing that runs: its requests are those that are in flight.
    """
    keys = (key for key in requests if model in key.models)
    pressed = next((key for key in keys if key.waiters or key.cooldown_s), None)
    if pressed is None:
        return found
    told = f"{pressed.in_flight} of {pressed.limit} requests of its model in flight, {pressed.waiters} wait"
    closed = f" ({pressed.pressure})" if pressed.pressure else ""
    until = now + pressed.cooldown_s if pressed.cooldown_s else None
    gate = "request_admission" if found.gate == "none" else found.gate
    return replace(found, gate=gate, reason=f"{found.reason}; {told}{closed}", until=found.until or until)


def accepting(task_id: str, journal: JournalThread) -> Explanation:
    """Return where a task is whose sample is on its way into the journal."""
    gate = "journal" if journal.is_blocked else "none"
    reason = "the journal cannot be written" if gate == "journal" else "its sample is being written to the journal"
    return Explanation(TaskId(task_id), "accepting", gate, reason)


async def journaled(task_id: str, journal: JournalThread, settings: Settings) -> Explanation:
    """Return where a task is that only the journal knows.

    Raises:
        NotFoundError: if it does not have it open: its sample is stored, or it never was.
    """
    state = await journal.call(journal.journal.state_of, task_id)
    if state is TaskState.SPOOLED:
        reason = (
            f"its sample is durable and waits for its batch: stored at {settings.sink_batch_size} samples, "
            f"or {settings.sink_max_wait:g} s after the oldest of them"
        )
        return Explanation(TaskId(task_id), "spooled", "batch", reason)
    if state is TaskState.UNKNOWN:
        raise NotFoundError(
            f"task {task_id} is not open in campaign {settings.campaign}",
            next_step="Its sample may be stored: `headgate why` looks there, too.",
        )
    reason = "another process of this journal holds it, or will take it over when this one looks again"
    return Explanation(TaskId(task_id), str(state), "holder", reason)


def task_row(state: str, task: Task) -> Mapping[str, Any]:
    """Return an open task as the monitoring API lists it."""
    return {
        "task_id": task.task_id,
        "state": state,
        "model": task.model,
        "environment": task.environment,
        "sequence": task.sequence,
        "stage": task.stage,
        "due_at": task.due_at,
        "attempt": task.attempt,
    }
