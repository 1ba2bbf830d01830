"""Every metric of placement by name: the single source of Ray's page, the dashboard and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

_MILLISECONDS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0)
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0)


@dataclass(frozen=True, slots=True)
class PlacementMetric:
    """One metric: its name in `ray.util.metrics`, its kind, help text and tags, all of bounded cardinality."""

    name: str
    kind: Kind
    help: str
    tags: tuple[str, ...] = ("pool",)
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """Its name on the page of Ray's exporter: `ray_` before it, and `_total` behind a counter."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


_COMPATIBLE: Final = (
    PlacementMetric("schedulemesh_preemption_count", "counter", "Work that was preempted.", ("pool", "reason")),
    PlacementMetric(
        "schedulemesh_preemption_execution_latency_ms",
        "histogram",
        "Time from asking work to stop until its process was gone.",
        ("pool", "reason"),
        _MILLISECONDS,
    ),
    PlacementMetric(
        "schedulemesh_preemption_evaluation_latency_ms",
        "histogram",
        "Time to choose what to preempt.",
        buckets=_MILLISECONDS,
    ),
    PlacementMetric(
        "schedulemesh_task_submit_latency_ms",
        "histogram",
        "Time from submission until a group was assigned; label is the pool, strategy the step that found it.",
        ("label", "strategy"),
        _MILLISECONDS,
    ),
    PlacementMetric(
        "schedulemesh_task_schedule_latency_ms",
        "histogram",
        "Time from submission until the work ran; agent is the kind of its group, reserved or dynamic.",
        ("label", "strategy", "agent"),
        _MILLISECONDS,
    ),
    PlacementMetric("schedulemesh_schedule_success_count", "counter", "Work that was started.", ("label", "strategy")),
)
_OWN: Final = (
    PlacementMetric(
        "headgate_placement_groups",
        "gauge",
        "Placement groups; state is free, held, quarantined or broken.",
        ("pool", "state"),
    ),
    PlacementMetric("headgate_placement_waiting", "gauge", "Requests that wait."),
    PlacementMetric("headgate_placement_running", "gauge", "Requests whose work runs."),
    PlacementMetric(
        "headgate_placement_wait_seconds",
        "histogram",
        "Time from a request's latest entry into the queue until its work ran.",
        buckets=_SECONDS,
    ),
    PlacementMetric(
        "headgate_placement_group_creation_seconds",
        "histogram",
        "Time to create a placement group, including the wait for free nodes.",
        buckets=_SECONDS,
    ),
    PlacementMetric("headgate_placement_group_failures", "counter", "Placement groups that could not be created."),
    PlacementMetric(
        "headgate_placement_quarantines", "counter", "Groups quarantined as their work was not seen to end in time."
    ),
    PlacementMetric(
        "headgate_placement_preemptions",
        "counter",
        "Work that was preempted; reason as in the event work_preempted.",
        ("pool", "reason"),
    ),
    PlacementMetric(
        "headgate_placement_lost_work_seconds",
        "counter",
        "Work lost to preemption, in seconds of the whole cluster.",
        ("pool", "reason"),
    ),
    PlacementMetric(
        "headgate_placement_rejected_steps",
        "counter",
        "Placement steps that failed for a request, once per request and reason.",
        ("pool", "step"),
    ),
    PlacementMetric(
        "headgate_placement_work_ended",
        "counter",
        "Requests that ended; outcome is done, failed or withdrawn.",
        ("pool", "outcome"),
    ),
    PlacementMetric("headgate_placement_work_losses", "counter", "Work lost because its process or node died."),
    PlacementMetric("headgate_placement_drivers_lost", "counter", "Drivers that stopped sending heartbeats.", ()),
    PlacementMetric(
        "headgate_placement_differences",
        "counter",
        "Differences between ledger and Ray that the audit found; fixed is yes or no.",
        ("fixed",),
    ),
)
PLACEMENT_METRICS: Final[Mapping[str, PlacementMetric]] = {metric.name: metric for metric in (*_COMPATIBLE, *_OWN)}
"""Name -> what is known of it."""
