"""Every metric of placement, and what events make of them. Pure: the adapter in `cluster` gives the readings to Ray."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.core import Metric, events
from headgate.placement.pool import Group, GroupState
from headgate.placement.request import Occupancy, Stage

_MILLISECONDS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0)
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0)


_POOL: Final = ("pool",)


def exported_name(metric: Metric) -> str:
    """Return the name of a metric on the page of Ray's exporter: `ray_` before it, and `_total` behind a counter."""
    return f"ray_{metric.name}" + ("_total" if metric.kind == "counter" else "")


_COMPATIBLE: Final = (
    Metric("schedulemesh_preemption_count", "counter", "Work that was preempted.", ("pool", "reason")),
    Metric(
        "schedulemesh_preemption_execution_latency_ms",
        "histogram",
        "Time from asking work to stop until its process was gone.",
        ("pool", "reason"),
        _MILLISECONDS,
    ),
    Metric(
        "schedulemesh_preemption_evaluation_latency_ms",
        "histogram",
        "Time to choose what to preempt.",
        _POOL,
        buckets=_MILLISECONDS,
    ),
    Metric(
        "schedulemesh_task_submit_latency_ms",
        "histogram",
        "Time from submission until a group was assigned; label is the pool, strategy the step that found it.",
        ("label", "strategy"),
        _MILLISECONDS,
    ),
    Metric(
        "schedulemesh_task_schedule_latency_ms",
        "histogram",
        "Time from submission until the work ran; agent is the kind of its group, reserved or dynamic.",
        ("label", "strategy", "agent"),
        _MILLISECONDS,
    ),
    Metric("schedulemesh_schedule_success_count", "counter", "Work that was started.", ("label", "strategy")),
)
_OWN: Final = (
    Metric(
        "headgate_placement_groups",
        "gauge",
        "Placement groups; state is free, held, quarantined or broken.",
        ("pool", "state"),
    ),
    Metric("headgate_placement_waiting", "gauge", "Requests that wait.", _POOL),
    Metric("headgate_placement_running", "gauge", "Requests whose work runs.", _POOL),
    Metric(
        "headgate_placement_wait_seconds",
        "histogram",
        "Time from a request's latest entry into the queue until its work ran.",
        _POOL,
        buckets=_SECONDS,
    ),
    Metric(
        "headgate_placement_group_creation_seconds",
        "histogram",
        "Time to create a placement group, including the wait for free nodes.",
        _POOL,
        buckets=_SECONDS,
    ),
    Metric("headgate_placement_group_failures", "counter", "Placement groups that could not be created.", _POOL),
    Metric(
        "headgate_placement_quarantines",
        "counter",
        "Groups quarantined as their work was not seen to end in time.",
        _POOL,
    ),
    Metric(
        "headgate_placement_preemptions",
        "counter",
        "Work that was preempted; reason as in the event work_preempted.",
        ("pool", "reason"),
    ),
    Metric(
        "headgate_placement_lost_work_seconds",
        "counter",
        "Work lost to preemption, in seconds of the whole cluster.",
        ("pool", "reason"),
    ),
    Metric(
        "headgate_placement_rejected_steps",
        "counter",
        "Placement steps that failed for a request, once per request and reason.",
        ("pool", "step"),
    ),
    Metric(
        "headgate_placement_work_ended",
        "counter",
        "Requests that ended; outcome is done, failed or withdrawn.",
        ("pool", "outcome"),
    ),
    Metric("headgate_placement_work_losses", "counter", "Work lost because its process or node died.", _POOL),
    Metric("headgate_placement_drivers_lost", "counter", "Drivers that stopped sending heartbeats.", ()),
    Metric(
        "headgate_placement_differences",
        "counter",
        "Differences between ledger and Ray that the audit found; fixed is yes or no.",
        ("fixed",),
    ),
)
PLACEMENT_METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (*_COMPATIBLE, *_OWN)}
"""Name -> what is known of it."""


_KNOWN_STATES: Final = {
    GroupState.FREE: "free",
    GroupState.HELD: "held",
    GroupState.QUARANTINED: "quarantined",
    GroupState.BROKEN: "broken",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A value for one series: added to a counter, observed by a histogram, or what a gauge now shows."""

    name: str
    tags: tuple[str, ...]
    value: float


@dataclass(slots=True)
class _KnownGroup:
    pool: str
    reserved: bool
    state: str


class Meter:
    """Remembers from events what the gauges show. Owned by the metrics of one ledger; memory is what is open now.

    A ledger that was restored tells what is there by `seed`, as no event does.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _KnownGroup] = {}
        self._group_of: dict[str, str] = {}
        self._steps: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._gauges: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._changed: dict[tuple[str, tuple[str, ...]], None] = {}
        self._take: Mapping[type[events.Event], Callable[[Any], Iterable[Reading]]] = {
            events.GroupCreated: self._group_created,
            events.GroupCreationFailed: self._group_failed,
            events.GroupRemoved: self._group_removed,
            events.GroupQuarantined: self._group_quarantined,
            events.GroupBroken: self._group_broken,
            events.WorkQueued: self._queued,
            events.WorkPlaced: self._placed,
            events.WorkStarted: self._started,
            events.StepRejected: self._rejected,
            events.PreemptionPlanned: self._planned,
            events.WorkPreempted: self._preempted,
            events.WorkEnded: self._ended,
            events.WorkLost: self._lost,
            events.DriverLost: self._driver_lost,
            events.PlacementDiffers: self._differs,
        }

    def seed(self, groups: Iterable[Group], requests: Iterable[Occupancy]) -> list[Reading]:
        """Take over what is there already, and return what the gauges show of it."""
        for group in groups:
            state = _KNOWN_STATES.get(group.state)
            if state is not None:
                self._set_group(group.group_id, _KnownGroup(group.pool, group.reserved is not None, state))
            if group.holder:
                self._group_of[group.holder] = group.group_id
        for occupancy in requests:
            if occupancy.stage in {Stage.RUNNING, Stage.STOPPING}:
                self._enter(self._running, "headgate_placement_running", occupancy.request_id, occupancy.request.pool)
            elif not occupancy.stage.has_ended:
                self._enter(self._waiting, "headgate_placement_waiting", occupancy.request_id, occupancy.request.pool)
        return list(self._gauge_readings())

    def take(self, event: events.Event) -> list[Reading]:
        """Return what an event changes; nothing for events that no metric counts."""
        taken = self._take.get(type(event))
        if taken is None:
            return []
        found = [reading for reading in taken(event) if math.isfinite(reading.value) and reading.value >= 0]
        return [*found, *self._gauge_readings()]

    def _group_created(self, event: events.GroupCreated) -> Iterator[Reading]:
        state = "held" if event.group in self._group_of.values() else "free"
        self._set_group(event.group, _KnownGroup(event.pool, event.reserved, state))
        yield Reading("headgate_placement_group_creation_seconds", (event.pool,), event.took_s)

    def _group_failed(self, event: events.GroupCreationFailed) -> Iterator[Reading]:
        self._set_group(event.group, None)
        yield Reading("headgate_placement_group_failures", (event.pool,), 1)

    def _group_removed(self, event: events.GroupRemoved) -> Iterable[Reading]:
        self._set_group(event.group, None)
        return ()

    def _group_quarantined(self, event: events.GroupQuarantined) -> Iterator[Reading]:
        self._set_state(event.group, "quarantined")
        yield Reading("headgate_placement_quarantines", (event.pool,), 1)

    def _group_broken(self, event: events.GroupBroken) -> Iterable[Reading]:
        self._set_state(event.group, "broken")
        return ()

    def _queued(self, event: events.WorkQueued) -> Iterable[Reading]:
        self._leave(event.request)
        self._enter(self._waiting, "headgate_placement_waiting", event.request, event.pool)
        return ()

    def _placed(self, event: events.WorkPlaced) -> Iterator[Reading]:
        self._group_of[event.request] = event.group
        self._steps[event.request] = event.step
        self._set_state(event.group, "held")
        yield Reading("schedulemesh_task_submit_latency_ms", (event.pool, event.step), 1_000 * event.waited_s)

    def _started(self, event: events.WorkStarted) -> Iterator[Reading]:
        step = self._steps.pop(event.request, "unknown")
        self._leave_line(event.request)
        self._group_of[event.request] = event.group
        self._set_state(event.group, "held")
        self._enter(self._running, "headgate_placement_running", event.request, event.pool)
        group = self._groups.get(event.group)
        kind = "reserved" if group is not None and group.reserved else "dynamic"
        yield Reading("schedulemesh_task_schedule_latency_ms", (event.pool, step, kind), 1_000 * event.waited_s)
        yield Reading("schedulemesh_schedule_success_count", (event.pool, step), 1)
        yield Reading("headgate_placement_wait_seconds", (event.pool,), event.waited_s)

    def _rejected(self, event: events.StepRejected) -> Iterator[Reading]:
        yield Reading("headgate_placement_rejected_steps", (event.pool, event.step), 1)

    def _planned(self, event: events.PreemptionPlanned) -> Iterator[Reading]:
        yield Reading("schedulemesh_preemption_evaluation_latency_ms", (event.pool,), event.evaluated_ms)

    def _preempted(self, event: events.WorkPreempted) -> Iterator[Reading]:
        self._leave(event.request)
        tags = (event.pool, event.reason)
        yield Reading("schedulemesh_preemption_count", tags, 1)
        yield Reading("schedulemesh_preemption_execution_latency_ms", tags, 1_000 * event.took_s)
        yield Reading("headgate_placement_preemptions", tags, 1)
        yield Reading("headgate_placement_lost_work_seconds", tags, event.lost_s)

    def _ended(self, event: events.WorkEnded) -> Iterator[Reading]:
        self._leave(event.request)
        self._leave_line(event.request)
        yield Reading("headgate_placement_work_ended", (event.pool, event.outcome), 1)

    def _lost(self, event: events.WorkLost) -> Iterator[Reading]:
        self._leave(event.request)
        yield Reading("headgate_placement_work_losses", (event.pool,), 1)

    def _driver_lost(self, _: events.DriverLost) -> Iterator[Reading]:
        yield Reading("headgate_placement_drivers_lost", (), 1)

    def _differs(self, event: events.PlacementDiffers) -> Iterator[Reading]:
        yield Reading("headgate_placement_differences", ("yes" if event.fixed else "no",), 1)

    def _leave(self, request: str) -> None:
        """Let a request hold nothing: it was seen dead. Its group is free, or of whom it was promised to meanwhile."""
        self._steps.pop(request, None)
        pool = self._running.pop(request, None)
        if pool is not None:
            self._change("headgate_placement_running", (pool,), -1)
        group = self._group_of.pop(request, None)
        if group is not None:
            self._set_state(group, "held" if group in self._group_of.values() else "free")

    def _leave_line(self, request: str) -> None:
        pool = self._waiting.pop(request, None)
        if pool is not None:
            self._change("headgate_placement_waiting", (pool,), -1)

    def _enter(self, place: dict[str, str], gauge: str, request: str, pool: str) -> None:
        before = place.get(request)
        if before is not None:
            self._change(gauge, (before,), -1)
        place[request] = pool
        self._change(gauge, (pool,), 1)

    def _set_state(self, group_id: str, state: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self._set_group(group_id, _KnownGroup(group.pool, group.reserved, state))

    def _set_group(self, group_id: str, group: _KnownGroup | None) -> None:
        before = self._groups.pop(group_id, None)
        if before is not None:
            self._change("headgate_placement_groups", (before.pool, before.state), -1)
        if group is not None:
            self._groups[group_id] = group
            self._change("headgate_placement_groups", (group.pool, group.state), 1)

    def _change(self, gauge: str, tags: tuple[str, ...], by: int) -> None:
        self._gauges[gauge, tags] += by
        self._changed[gauge, tags] = None

    def _gauge_readings(self) -> Iterator[Reading]:
        for gauge, tags in self._changed:
            yield Reading(gauge, tags, self._gauges[gauge, tags])
        self._changed.clear()
