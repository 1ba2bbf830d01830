"""Which event is drawn how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core import events
from headgate.telemetry.fields import event_name
from headgate.telemetry.perfetto.request_tracks import PlacementTracks, RequestTracks
from headgate.telemetry.perfetto.scene import Fields, Scene, number, seconds_us


@dataclass(frozen=True, slots=True)
class Canvas:
    """What the events of one run are drawn on."""

    scene: Scene
    requests: RequestTracks
    placement: PlacementTracks


Draw = Callable[[Canvas, Fields, float, str], None]
"""Draws an event with these fields at a time (microseconds of the trace); the last argument is the event's name."""


def _enqueued(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    canvas.scene.ready(str(fields.get("task_id")), at)
    _queue_counter(canvas, fields, at, "")


def _leased(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    group = canvas.scene.group(_model_of(fields))
    since = canvas.scene.ready_since(task_id)
    if since is not None:
        canvas.scene.writer.span(group.pid, "queue", "queued", task_id, since, at, {"task_id": task_id})
    canvas.scene.begin(task_id, _model_of(fields), at, dict(fields), str(fields.get("stage") or "task"))


def _lease_returned(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    canvas.requests.task_ends(task_id, at)
    canvas.scene.leave(task_id, at)


def _completed(canvas: Canvas, fields: Fields, _: float, __: str) -> None:
    name = f"{fields.get('stage')} {fields.get('outcome')}"
    canvas.scene.complete(str(fields.get("task_id")), name, {"outcome": fields.get("outcome")})


def _of_task(canvas: Canvas, fields: Fields, at: float, name: str) -> None:
    """Mark an event on the track of its task, or on the campaign's when the task does not run."""
    place = canvas.scene.place_of(str(fields.get("task_id")))
    pid, tid = place if place is not None else (canvas.scene.campaign, canvas.scene.track("tasks"))
    canvas.scene.writer.mark(pid, tid, name, at, fields)


def _frontier(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    writer, pid = canvas.scene.writer, canvas.scene.campaign
    if "after" in fields:
        writer.counter(pid, "frontier target", at, {"row groups": number(fields["after"])})
    else:
        writer.counter(pid, "frontier", at, {"row groups": number(fields.get("active"))})


def _scheduler_health(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    writer, pid = canvas.scene.writer, canvas.scene.campaign
    writer.counter(pid, "ready queue", at, {"tasks": number(fields.get("queued"))})
    writer.counter(pid, "frontier", at, {"row groups": number(fields.get("active_row_groups"))})
    writer.counter(pid, "frontier target", at, {"row groups": number(fields.get("frontier_target"))})
    writer.counter(pid, "deferred tasks", at, {"tasks": number(fields.get("deferred"))})


def _model_of(fields: Fields) -> str:
    return str(fields.get("model") or fields.get("group") or "")


def _started(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id, model = str(fields.get("task_id")), str(fields.get("model"))
    if task_id in canvas.scene.running:
        canvas.scene.tell(task_id, f"{fields.get('environment')}", dict(fields))
        return
    waited_us = seconds_us(fields, "queue_wait_s")
    writer = canvas.scene.writer
    writer.span(
        canvas.scene.group(model).pid, "queue", "queued", task_id, max(0.0, at - waited_us), at, {"task_id": task_id}
    )
    canvas.scene.begin(task_id, model, at, dict(fields))


def _accepted(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    running = canvas.scene.running.get(task_id)
    ended = at if running is None else min(at, running.start + seconds_us(fields, "latency_s"))
    canvas.requests.task_ends(task_id, ended)
    shown = ("score", "success", "error_kind", "error", "turns", "attempts", "request_wait_s", "why")
    args = {name: fields.get(name) for name in shown}
    canvas.scene.end(task_id, ended, args, name=f"{fields.get('environment')} {fields.get('sequence')}")


def _returned(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    canvas.requests.task_ends(task_id, at)
    canvas.scene.end(task_id, at, fields, name=f"{fields.get('environment')} returned")


def _deferred(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    canvas.requests.task_ends(task_id, at)
    canvas.scene.end(task_id, at, fields, name=f"{fields.get('environment')} deferred")


def _queue_counter(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    canvas.scene.writer.counter(canvas.scene.campaign, "ready queue", at, {"tasks": number(fields.get("queued"))})


def _health(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    writer, pid = canvas.scene.writer, canvas.scene.campaign
    writer.counter(pid, "ready queue", at, {"tasks": number(fields.get("queued"))})
    writer.counter(pid, "buffered tasks", at, {"tasks": number(fields.get("buffered"))})
    writer.counter(pid, "spooled samples", at, {"samples": number(fields.get("spooled"))})
    for name, units in (fields.get("resources") or {}).items():
        if isinstance(units, list) and len(units) == 2:
            writer.counter(pid, f"resource {name}", at, {"in use": number(units[0]), "limit": number(units[1])})
    if fields.get("frontier_target") is not None:
        writer.counter(pid, "frontier target", at, {"tasks": number(fields["frontier_target"])})


def _slots(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
    held = number(fields.get("held"))
    canvas.scene.writer.counter(canvas.scene.campaign, f"slots held {fields.get('limit')}", at, {"slots": held})


def _marked(track: str, *, is_global: bool = False) -> Draw:
    """Return what makes a mark of an event on a track of the campaign."""

    def draw(canvas: Canvas, fields: Fields, at: float, name: str) -> None:
        tid = canvas.scene.track(track)
        canvas.scene.writer.mark(canvas.scene.campaign, tid, name, at, fields, is_global=is_global)

    return draw


def _told(canvas: Canvas, fields: Fields, at: float, name: str) -> None:
    canvas.requests.told(name, fields, at)


def _told_of_pool(canvas: Canvas, fields: Fields, at: float, name: str) -> None:
    canvas.placement.told(fields, at, name)


def _lasted(track: str, name: str, seconds: str) -> Draw:
    """Return what draws the time that an event ends, of so many seconds as its field says."""

    def draw(canvas: Canvas, fields: Fields, at: float, _: str) -> None:
        start = max(0.0, at - seconds_us(fields, seconds))
        shown = f"{name} {fields['model']}" if "model" in fields else name
        identity = f"{name} {canvas.scene.writer.written}"
        canvas.scene.track(track)
        canvas.scene.writer.span(canvas.scene.campaign, track, shown, identity, start, at, fields)

    return draw


_MARKED: Final[Mapping[str, tuple[type[events.Event], ...]]] = {
    "campaign": (
        events.CampaignStarted,
        events.CampaignStopping,
        events.CampaignStopped,
        events.RosterRefreshed,
        events.RosterRefreshFailed,
        events.TaskProviderFailed,
        events.MonitorStarted,
        events.CapacityReported,
    ),
    "scheduling": (
        events.AdmissionBlocked,
        events.EarlyStopped,
        events.GroupCapped,
        events.QueueDrained,
        events.RowGroupAdmissionBlocked,
        events.SchedulerJobCompleted,
        events.SchedulerJobStarted,
    ),
    "models": (events.ModelPaused, events.ModelGivenUp, events.BoostChanged, events.DuesForgiven, events.PairSettled),
    "backpressure": (events.QueueWarned, events.QueuePaused),
    "slots": (
        events.SlotLimitChanged,
        events.SlotLimitDiffers,
        events.SlotLimitMissing,
        events.SlotsDenied,
        events.SlotsDisagree,
        events.SlotServiceAway,
        events.SlotServiceBack,
    ),
    "placement": (events.DriverLost, events.PlacementDiffers),
    "samples": (events.SampleRefused, events.RowsQuarantined, events.StoreFailed, events.JournalBlocked),
}
"""Track of the campaign -> the events that are a mark on it."""

_DRAWN: dict[type[events.Event], Draw] = {
    events.TaskStarted: _started,
    events.SampleAccepted: _accepted,
    events.TaskReturned: _returned,
    events.TasksEnqueued: _queue_counter,
    events.TaskDeferred: _deferred,
    events.ReadyEnqueued: _enqueued,
    events.TaskLeaseAcquired: _leased,
    events.TaskLeaseReleased: _lease_returned,
    events.TaskCompleted: _completed,
    events.RowGroupAdmitted: _frontier,
    events.RowGroupAdmissionTargetChanged: _frontier,
    events.RowGroupCheckpointed: _lasted("row groups", "row group", "seconds"),
    events.SchedulerHealthSnapshot: _scheduler_health,
    events.HealthReported: _health,
    events.ModelResumed: _lasted("model pauses", "paused", "paused_for_s"),
    events.QueueResumed: _lasted("queue paused", "queue paused", "paused_for_s"),
    events.JournalRecovered: _lasted("journal", "journal blocked", "blocked_for_s"),
    events.BatchStored: _lasted("store", "batch stored", "seconds"),
    events.RequestFinished: lambda canvas, fields, at, _: canvas.requests.finished(fields, at),
    events.RequestDelayed: lambda canvas, fields, at, _: canvas.requests.delayed(fields, at),
    events.RequestWaitStarted: lambda canvas, fields, at, _: canvas.requests.wait_started(fields, at),
    events.RequestWaitCompleted: lambda canvas, fields, at, _: canvas.requests.wait_ended(fields, at, ""),
    events.RequestWaitTimedOut: lambda canvas, fields, at, _: canvas.requests.wait_ended(fields, at, ": timed out"),
    events.RequestWaitCancelled: lambda canvas, fields, at, _: canvas.requests.wait_ended(fields, at, ": cancelled"),
    events.RequestLeaseAcquired: lambda canvas, fields, at, _: canvas.requests.lease_acquired(fields, at),
    events.RequestLeaseReleased: lambda canvas, fields, at, _: canvas.requests.lease_released(fields, at),
    events.RequestRateLimited: lambda canvas, fields, at, _: canvas.requests.rate_limited(fields, at),
    events.RequestLimitDecreased: lambda canvas, fields, at, _: canvas.requests.limit_changed(fields, at),
    events.RequestLimitIncreased: lambda canvas, fields, at, _: canvas.requests.limit_changed(fields, at),
    events.RequestCeilingRecovered: lambda canvas, fields, at, _: canvas.requests.limit_changed(fields, at),
    events.RequestFullyRecovered: lambda canvas, fields, at, _: canvas.requests.limit_changed(fields, at),
    events.BreakerClosed: lambda canvas, fields, at, _: canvas.requests.breaker_closed(fields, at),
    events.GroupRemoved: lambda canvas, fields, at, name: canvas.placement.group_removed(fields, at, name),
    events.WorkQueued: lambda canvas, fields, at, _: canvas.placement.queued(fields, at),
    events.WorkStarted: lambda canvas, fields, at, _: canvas.placement.started(fields, at),
    events.WorkEnded: lambda canvas, fields, at, name: canvas.placement.ended(fields, at, name),
    events.WorkPreempted: lambda canvas, fields, at, name: canvas.placement.ended(fields, at, name),
    events.WorkLost: lambda canvas, fields, at, name: canvas.placement.ended(fields, at, name),
    events.SlotsLeased: _slots,
    events.SlotsReturned: _slots,
    events.SlotsLost: _slots,
}

_TOLD_OF_KEYS: Final[tuple[type[events.Event], ...]] = (
    events.BreakerOpened,
    events.ProviderSlotsChanged,
    events.RequestCapChanged,
    events.RequestCapsDiffer,
    events.RequestDenied,
    events.RequestQueueDrained,
    events.RequestQueueFormed,
    events.RequestReleaseRefused,
    events.RequestResourceRegistered,
)

_TOLD_OF_TASKS: Final[tuple[type[events.Event], ...]] = (
    events.AdmissionDenied,
    events.NonRetryableDropped,
    events.ReleaseDiagnostic,
    events.RequestPressureSkipped,
    events.RetryDeferred,
    events.RetryDenied,
    events.SelectionStale,
    events.TaskCancelled,
    events.TaskParked,
    events.TaskUnparked,
    events.WorkerSpawnFailed,
)

_TOLD_OF_POOLS: Final[tuple[type[events.Event], ...]] = (
    events.GroupBroken,
    events.GroupCreated,
    events.GroupCreationFailed,
    events.GroupQuarantined,
    events.PoolChanged,
    events.PreemptionPlanned,
    events.StepRejected,
    events.WorkPlaced,
)

NOT_DRAWN: Final[tuple[type[events.Event], ...]] = (
    events.StatusReported,  # HealthReported says more
    events.TaskOpened,  # the queue wait is drawn when it ends
    events.RequestStarted,  # the attempt is drawn when it ends
    events.DependencyReady,  # the task is queued in the same moment
    events.RetryRedispatched,  # likewise
    events.TaskSelected,  # its lease is drawn
    events.WorkerSpawned,  # likewise
    events.QueueEmpty,  # the counter of the queue shows it
)
"""What the trace leaves out, because another event draws it."""


_FOR_ALL: Final = (events.CampaignStarted, events.CampaignStopping, events.CampaignStopped)
"""What is marked across all tracks."""


def _by_name() -> dict[str, Draw]:
    table = {event_name(kind): draw for kind, draw in _DRAWN.items()}
    table |= {event_name(kind): _told for kind in _TOLD_OF_KEYS}
    table |= {event_name(kind): _of_task for kind in _TOLD_OF_TASKS}
    table |= {event_name(kind): _told_of_pool for kind in _TOLD_OF_POOLS}
    for track, kinds in _MARKED.items():
        table |= {event_name(kind): _marked(track, is_global=kind in _FOR_ALL) for kind in kinds}
    return table | {"events_dropped": _marked("campaign", is_global=True)}


DRAWN_BY_NAME: Final[Mapping[str, Draw]] = _by_name()
NAMES_NOT_DRAWN: Final = frozenset(event_name(kind) for kind in NOT_DRAWN)
other: Final = _marked("other")
"""An event that nothing else is known of is a mark, so that a trace of a later version loses nothing."""
