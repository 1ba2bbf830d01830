"""The trace of one run: which event is drawn how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headgate.core import events
from headgate.telemetry.fields import event_name
from headgate.telemetry.perfetto.request_tracks import RequestTracks
from headgate.telemetry.perfetto.scene import Fields, Scene
from headgate.telemetry.perfetto.writer import TraceWriter

Draw = Callable[["RunTrace", Fields, float, str], None]


class RunTrace:
    """Takes the events of one run in order and draws them; `close` draws what is still going on.

    Owned by one conversion. Times come in as the run's monotonic seconds, which do not jump when the machine's clock is
    set; an event without them (a note on dropped ones) counts by its wall time.
    """

    def __init__(self, writer: TraceWriter, run: str, *, begins_at: float, monotonic: float | None) -> None:
        self.scene = Scene(writer, run)
        self.requests = RequestTracks(self.scene)
        self._offset_s = begins_at - monotonic if monotonic is not None else None
        self._last = begins_at * 1e6

    def take(self, name: str, fields: Fields, monotonic: float | None, since_origin_s: float) -> float:
        """Draw an event; return its time in seconds since the trace's begin."""
        if monotonic is None:
            at = max(self._last, 0.0)
        else:
            if self._offset_s is None:
                self._offset_s = since_origin_s - monotonic
            at = max(0.0, (monotonic + self._offset_s) * 1e6)
        self._last = max(self._last, at)
        if name not in _NAMES_NOT_DRAWN:
            _DRAWN_BY_NAME.get(name, _other)(self, fields, at, name)
        return at / 1e6

    def close(self) -> None:
        """Draw what is still going on, up to the last event."""
        self.requests.close(self._last)
        for task_id in list(self.scene.running):
            self.scene.end(task_id, self._last, {"outcome": "still running"})


def _started(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    task_id, model = str(fields.get("task_id")), str(fields.get("model"))
    waited_us = 1e6 * float(fields.get("queue_wait_s") or 0.0)
    writer = trace.scene.writer
    writer.span(
        trace.scene.group(model).pid, "queue", "queued", task_id, max(0.0, at - waited_us), at, {"task_id": task_id}
    )
    trace.scene.begin(task_id, model, at, dict(fields))


def _accepted(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    running = trace.scene.running.get(task_id)
    ended = at if running is None else min(at, running.start + 1e6 * float(fields.get("latency_s") or 0.0))
    trace.requests.task_ends(task_id, ended)
    shown = ("score", "success", "error_kind", "error", "turns", "attempts", "request_wait_s", "why")
    args = {name: fields.get(name) for name in shown}
    trace.scene.end(task_id, ended, args, name=f"{fields.get('environment')} {fields.get('sequence')}")


def _returned(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    task_id = str(fields.get("task_id"))
    trace.requests.task_ends(task_id, at)
    trace.scene.end(task_id, at, fields, name=f"{fields.get('environment')} returned")


def _queue_counter(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    trace.scene.writer.counter(trace.scene.campaign, "ready queue", at, {"tasks": fields.get("queued") or 0})


def _health(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    writer, pid = trace.scene.writer, trace.scene.campaign
    writer.counter(pid, "ready queue", at, {"tasks": fields.get("queued") or 0})
    writer.counter(pid, "buffered tasks", at, {"tasks": fields.get("buffered") or 0})
    writer.counter(pid, "spooled samples", at, {"samples": fields.get("spooled") or 0})
    for name, units in (fields.get("resources") or {}).items():
        if isinstance(units, list) and len(units) == 2:
            writer.counter(pid, f"resource {name}", at, {"in use": units[0], "limit": units[1]})
    if fields.get("frontier_target") is not None:
        writer.counter(pid, "frontier target", at, {"tasks": fields["frontier_target"]})


def _slots(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
    held = fields.get("held") or 0
    trace.scene.writer.counter(trace.scene.campaign, f"slots held {fields.get('limit')}", at, {"slots": held})


def _marked(track: str, *, is_global: bool = False) -> Draw:
    """Return what makes a mark of an event on a track of the campaign."""

    def draw(trace: RunTrace, fields: Fields, at: float, name: str) -> None:
        tid = trace.scene.track(track)
        trace.scene.writer.mark(trace.scene.campaign, tid, name, at, fields, is_global=is_global)

    return draw


def _told(trace: RunTrace, fields: Fields, at: float, name: str) -> None:
    trace.requests.told(name, fields, at)


def _lasted(track: str, name: str, seconds: str) -> Draw:
    """Return what draws the time that an event ends, of so many seconds as its field says."""

    def draw(trace: RunTrace, fields: Fields, at: float, _: str) -> None:
        start = max(0.0, at - 1e6 * float(fields.get(seconds) or 0.0))
        shown = f"{name} {fields['model']}" if "model" in fields else name
        identity = f"{name} {trace.scene.writer.written}"
        trace.scene.track(track)
        trace.scene.writer.span(trace.scene.campaign, track, shown, identity, start, at, fields)

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
    "models": (events.ModelPaused, events.BoostChanged, events.DuesForgiven),
    "backpressure": (events.QueueWarned, events.QueuePaused),
    "slots": (
        events.SlotLimitChanged,
        events.SlotLimitMissing,
        events.SlotsDenied,
        events.SlotsDisagree,
        events.SlotServiceAway,
        events.SlotServiceBack,
    ),
    "samples": (events.SampleRefused, events.RowsQuarantined, events.StoreFailed, events.JournalBlocked),
}
"""Track of the campaign -> the events that are a mark on it."""

_DRAWN: dict[type[events.Event], Draw] = {
    events.TaskStarted: _started,
    events.SampleAccepted: _accepted,
    events.TaskReturned: _returned,
    events.TasksEnqueued: _queue_counter,
    events.HealthReported: _health,
    events.ModelResumed: _lasted("model pauses", "paused", "paused_for_s"),
    events.QueueResumed: _lasted("queue paused", "queue paused", "paused_for_s"),
    events.JournalRecovered: _lasted("journal", "journal blocked", "blocked_for_s"),
    events.BatchStored: _lasted("store", "batch stored", "seconds"),
    events.RequestFinished: lambda trace, fields, at, _: trace.requests.finished(fields, at),
    events.RequestDelayed: lambda trace, fields, at, _: trace.requests.delayed(fields, at),
    events.RequestWaitStarted: lambda trace, fields, at, _: trace.requests.wait_started(fields, at),
    events.RequestWaitCompleted: lambda trace, fields, at, _: trace.requests.wait_ended(fields, at, ""),
    events.RequestWaitTimedOut: lambda trace, fields, at, _: trace.requests.wait_ended(fields, at, ": timed out"),
    events.RequestWaitCancelled: lambda trace, fields, at, _: trace.requests.wait_ended(fields, at, ": cancelled"),
    events.RequestLeaseAcquired: lambda trace, fields, at, _: trace.requests.lease_acquired(fields, at),
    events.RequestLeaseReleased: lambda trace, fields, at, _: trace.requests.lease_released(fields, at),
    events.RequestRateLimited: lambda trace, fields, at, _: trace.requests.rate_limited(fields, at),
    events.RequestLimitDecreased: lambda trace, fields, at, _: trace.requests.limit_changed(fields, at),
    events.RequestLimitIncreased: lambda trace, fields, at, _: trace.requests.limit_changed(fields, at),
    events.RequestCeilingRecovered: lambda trace, fields, at, _: trace.requests.limit_changed(fields, at),
    events.RequestFullyRecovered: lambda trace, fields, at, _: trace.requests.limit_changed(fields, at),
    events.BreakerClosed: lambda trace, fields, at, _: trace.requests.breaker_closed(fields, at),
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

NOT_DRAWN: Final[tuple[type[events.Event], ...]] = (
    events.StatusReported,  # HealthReported says more
    events.TaskOpened,  # the queue wait is drawn when it ends
    events.RequestStarted,  # the attempt is drawn when it ends
)
"""What the trace leaves out, because another event draws it."""


_FOR_ALL: Final = (events.CampaignStarted, events.CampaignStopping, events.CampaignStopped)
"""What is marked across all tracks."""


def _by_name() -> dict[str, Draw]:
    table = {event_name(kind): draw for kind, draw in _DRAWN.items()}
    table |= {event_name(kind): _told for kind in _TOLD_OF_KEYS}
    for track, kinds in _MARKED.items():
        table |= {event_name(kind): _marked(track, is_global=kind in _FOR_ALL) for kind in kinds}
    return table | {"events_dropped": _marked("campaign", is_global=True)}


_DRAWN_BY_NAME: Final[Mapping[str, Draw]] = _by_name()
_NAMES_NOT_DRAWN: Final = frozenset(event_name(kind) for kind in NOT_DRAWN)
_other: Final = _marked("other")
"""An event that nothing else is known of is a mark, so that a trace of a later version loses nothing."""
