"""Why a task does not run: the first gate that holds it, in the order in which the dispatcher checks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core import Task, TaskId
from headgate.scheduling.policies import DenyReason

if TYPE_CHECKING:
    from headgate.scheduling.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which gate holds a task (`headgate why`).

    Attributes:
        task_id: the task's id.
        state: `queued`, `running`, `parked`, `waiting` for another task, `deferred` to a later time, or `unknown`.
        gate: what holds the task; `none` when nothing does.
        reason: a sentence that explains it.
        until: when the gate opens by itself, if known.
        ahead: tasks of the same group with the same needs that go first.
    """

    task_id: TaskId
    state: str
    gate: str
    reason: str
    until: float | None = None
    ahead: int = 0


def explained(dispatcher: Dispatcher, task_id: TaskId, now: float) -> Explanation:
    """Return which gate of the dispatcher holds a task."""
    lease = dispatcher.lease_of(task_id)
    if lease is not None:
        if lease.lease_id in dispatcher.book.parked:
            return Explanation(task_id, "parked", "request", "its request waits; its worker serves others meanwhile")
        return Explanation(task_id, "running", "none", "it holds a worker lease")
    task = dispatcher.queue.item(task_id)
    if task_id in dispatcher.aside:
        return Explanation(task_id, "queued", "paused", "it is paused")
    if task is None:
        return Explanation(task_id, "unknown", "none", "it is neither queued nor running here")
    if dispatcher.is_next(task, now):
        return Explanation(task_id, "queued", "none", "it runs next")
    gate, reason, until = (
        _shut(dispatcher)
        or _lane(dispatcher, task, now)
        or _capacity(dispatcher, task)
        or _policy(dispatcher, task, now)
        or _pressure(dispatcher, task)
        or ("fair_share", "other groups are served first", None)
    )
    return Explanation(task_id, "queued", gate, reason, until, dispatcher.queue.position(task_id))


_Gate = tuple[str, str, float | None]


def _shut(dispatcher: Dispatcher) -> _Gate | None:
    if not dispatcher.shut_down_by:
        return None
    return DenyReason.SHUTDOWN, f"nothing more is started: {dispatcher.shut_down_by}", None


def _lane(dispatcher: Dispatcher, task: Task, now: float) -> _Gate | None:
    lane = dispatcher.lanes[task.model]
    if lane.held_until is not None:
        state = "is paused" if lane.held_until > now else "is about to run again after its pause"
        return "model_pause", f"model {task.model} {state}", lane.held_until
    if lane.max_parallel is None and not dispatcher.is_roster_open:
        return "no_model", f"model {task.model} is not in the roster", None
    if lane.max_parallel is not None and lane.in_flight >= lane.max_parallel:
        return (
            "model_parallel",
            f"model {task.model} has {lane.in_flight} of {lane.max_parallel} requests in flight",
            None,
        )
    pressed = dispatcher.pressure.get(task.model)
    if pressed is not None and pressed.is_useless:
        return pressed.reason, f"a request to model {task.model} would only wait ({pressed.reason})", pressed.until
    return None


def _capacity(dispatcher: Dispatcher, task: Task) -> _Gate | None:
    denied = dispatcher.book.shortage(task.resources)
    if denied is None:
        return None
    return denied.reason, f"{denied.capacity}: wants {denied.wanted}, {denied.available} free", None


def _policy(dispatcher: Dispatcher, task: Task, now: float) -> _Gate | None:
    refused = dispatcher.admission.refused(task, now)
    if refused is None:
        return None
    holds = f"group {task.group} holds {refused.held} of {refused.resource} and may hold {refused.may_hold} now"
    return refused.reason, holds + (f", {refused.debt} borrowed" if refused.debt else ""), None


def _pressure(dispatcher: Dispatcher, task: Task) -> _Gate | None:
    pressed = dispatcher.pressure.get(task.model)
    if pressed is None:
        return None
    most = dispatcher.pressure.rules.max_pass_overs
    reason = (
        f"model {task.model} is under pressure ({pressed.reason}); passed over {pressed.passed_over} of {most} times"
    )
    return "pressure", reason, pressed.until
