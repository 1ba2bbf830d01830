"""Every metric of placement, and its source. Pure: the adapter in `cluster` passes the readings to Ray."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core import Metric, events, metrics_of
from headgate.placement.pool import Group, GroupState
from headgate.placement.request import Occupancy, Stage

_MILLISECONDS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0)
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0)


_GROUPS: Final = "headgate_placement_groups"
_WAITING: Final = "headgate_placement_waiting"
_RUNNING: Final = "headgate_placement_running"
_POOL: Final = ("pool",)


def exported_name(metric: Metric) -> str:
    """Return a metric's name in Ray's exporter: prefixed with `ray_`, and for a counter suffixed with `_total`."""
    return f"ray_{metric.name}" + ("_total" if metric.kind == "counter" else "")


PLACEMENT_METRICS: Final[Mapping[str, Metric]] = {
    **metrics_of(
        "counter",
        {
            "schedulemesh_preemption_count{pool,reason}": "Work that was preempted.",
            "schedulemesh_schedule_success_count{label,strategy}": "Work that was started.",
            "headgate_placement_group_failures{pool}": "Placement groups that could not be created.",
            "headgate_placement_quarantines{pool}": "Groups quarantined as their work was not seen to end in time.",
            "headgate_placement_preemptions{pool,reason}": "Work that was preempted; reason as in the event "
            "work_preempted.",
            "headgate_placement_lost_work_seconds{pool,reason}": "Work lost to preemption, in seconds of the whole "
            "cluster.",
            "headgate_placement_rejected_steps{pool,step}": "Placement steps that failed for a request, once per "
            "request and reason.",
            "headgate_placement_work_ended{pool,outcome}": "Requests that ended; outcome is done, failed or withdrawn.",
            "headgate_placement_work_losses{pool}": "Work lost because its process or node died.",
            "headgate_placement_drivers_lost": "Drivers that stopped sending heartbeats.",
            "headgate_placement_differences{fixed}": "Differences between ledger and Ray that the audit found; fixed "
            "is yes or no.",
        },
    ),
    **metrics_of(
        "histogram",
        {
            "schedulemesh_preemption_execution_latency_ms{pool,reason}": "Time from asking work to stop until its "
            "process was gone.",
            "schedulemesh_preemption_evaluation_latency_ms{pool}": "Time to choose what to preempt.",
            "schedulemesh_task_submit_latency_ms{label,strategy}": "Time from submission until a group was assigned; "
            "label is the pool, strategy the step that found it.",
            "schedulemesh_task_schedule_latency_ms{label,strategy,agent}": "Time from submission until the work ran; "
            "agent is the kind of its group, reserved or dynamic.",
        },
        _MILLISECONDS,
    ),
    **metrics_of(
        "gauge",
        {
            f"{_GROUPS}{{pool,state}}": "Placement groups; state is free, held, quarantined or broken.",
            f"{_WAITING}{{pool}}": "Requests that wait.",
            f"{_RUNNING}{{pool}}": "Requests whose work runs.",
        },
    ),
    **metrics_of(
        "histogram",
        {
            "headgate_placement_wait_seconds{pool}": "Time from a request's latest entry into the queue until its "
            "work ran.",
            "headgate_placement_group_creation_seconds{pool}": "Time to create a placement group, including the wait "
            "for free nodes.",
        },
        _SECONDS,
    ),
}
"""Name -> its definition."""


COUNTS: Final[Mapping[type[events.Event], tuple[tuple[str, tuple[str, ...], str], ...]]] = {
    events.GroupCreated: (("headgate_placement_group_creation_seconds", _POOL, "took_s"),),
    events.GroupCreationFailed: (("headgate_placement_group_failures", _POOL, ""),),
    events.GroupQuarantined: (("headgate_placement_quarantines", _POOL, ""),),
    events.WorkPlaced: (("schedulemesh_task_submit_latency_ms", ("pool", "step"), "waited_s"),),
    events.WorkStarted: (
        ("schedulemesh_task_schedule_latency_ms", ("pool", "step", "kind"), "waited_s"),
        ("schedulemesh_schedule_success_count", ("pool", "step"), ""),
        ("headgate_placement_wait_seconds", _POOL, "waited_s"),
    ),
    events.StepRejected: (("headgate_placement_rejected_steps", ("pool", "step"), ""),),
    events.PreemptionPlanned: (("schedulemesh_preemption_evaluation_latency_ms", _POOL, "evaluated_ms"),),
    events.WorkPreempted: (
        ("schedulemesh_preemption_count", ("pool", "reason"), ""),
        ("schedulemesh_preemption_execution_latency_ms", ("pool", "reason"), "took_s"),
        ("headgate_placement_preemptions", ("pool", "reason"), ""),
        ("headgate_placement_lost_work_seconds", ("pool", "reason"), "lost_s"),
    ),
    events.WorkEnded: (("headgate_placement_work_ended", ("pool", "outcome"), ""),),
    events.WorkLost: (("headgate_placement_work_losses", _POOL, ""),),
    events.DriverLost: (("headgate_placement_drivers_lost", (), ""),),
    events.PlacementDiffers: (("headgate_placement_differences", ("fixed",), ""),),
}
"""Event -> metrics that count it: name, attributes used as tags, and the attribute whose value is added; 1 without one.

Two tags are not attributes of the event: `step`, the step that placed its request, and `kind`, the kind of its group.
"""
_SHOWN_STATES: Final = frozenset({GroupState.FREE, GroupState.HELD, GroupState.QUARANTINED, GroupState.BROKEN})
_TEXTS: Final = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A value for one series: the increment of a counter, an observation of a histogram, or the value of a gauge."""

    name: str
    tags: tuple[str, ...]
    value: float


class Meter:
    """Derives readings from one ledger's events, and gauges from its groups and requests, which it only reads."""

    def __init__(self, groups: Mapping[str, Group], requests: Mapping[str, Occupancy]) -> None:
        self._groups = groups
        self._requests = requests
        self._steps: dict[str, str] = {}
        self._shown: set[tuple[str, tuple[str, ...]]] = set()

    def gauges(self) -> list[Reading]:
        """Return the current values of the gauges; a series that was shown before and has no items now is 0."""
        counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for group in self._groups.values():
            if group.state in _SHOWN_STATES:
                counts[_GROUPS, (group.pool, group.state.value)] += 1
        for occupancy in self._requests.values():
            if not occupancy.stage.has_ended:
                gauge = _RUNNING if occupancy.stage in {Stage.RUNNING, Stage.STOPPING} else _WAITING
                counts[gauge, (occupancy.request.pool,)] += 1
        self._shown.update(counts)
        return [Reading(name, tags, counts[name, tags]) for name, tags in self._shown]

    def take(self, event: events.Event) -> list[Reading]:
        """Return the readings of an event; none for events that no metric counts."""
        more: dict[str, str] = {}
        match event:
            case events.WorkPlaced():
                self._steps[event.request] = event.step
            case events.WorkStarted():
                group = self._groups.get(event.group)
                kind = "reserved" if group is not None and group.reserved is not None else "dynamic"
                more = {"step": self._steps.pop(event.request, "unknown"), "kind": kind}
            case events.WorkQueued() | events.WorkEnded():
                self._steps.pop(event.request, None)
        found = []
        for name, attributes, added in COUNTS.get(type(event), ()):
            tags = [more[each] if each in more else getattr(event, each) for each in attributes]
            value = float(getattr(event, added)) if added else 1.0
            if name.endswith("_ms") and added.endswith("_s"):
                value *= 1_000
            if math.isfinite(value) and value >= 0:
                found.append(Reading(name, tuple(_TEXTS[tag] if isinstance(tag, bool) else tag for tag in tags), value))
        return found
