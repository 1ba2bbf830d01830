"""What the metrics of placement show follows from its events alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import events
from headgate.placement.amounts import amounts
from headgate.placement.metrics import COUNTS, PLACEMENT_METRICS, Meter, Reading, exported_name
from headgate.placement.pool import Group, GroupShape, GroupState
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from tests.telemetry.event_strategies import event_classes, instances

SEEDS = {
    "schedulemesh_preemption_count": ("pool", "reason"),
    "schedulemesh_preemption_execution_latency_ms": ("pool", "reason"),
    "schedulemesh_preemption_evaluation_latency_ms": ("pool",),
    "schedulemesh_task_submit_latency_ms": ("label", "strategy"),
    "schedulemesh_task_schedule_latency_ms": ("label", "strategy", "agent"),
    "schedulemesh_schedule_success_count": ("label", "strategy"),
}


class Watched:
    """A meter, and what its readings add up to."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.gauges: dict[tuple[str, tuple[str, ...]], float] = {}
        self.counts: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def tell(self, *told: events.Event) -> list[Reading]:
        found = [reading for event in told for reading in self.meter.take(event)]
        for reading in found:
            if PLACEMENT_METRICS[reading.name].kind == "gauge":
                self.gauges[reading.name, reading.tags] = reading.value
            else:
                self.counts[reading.name, reading.tags] += reading.value
        return found

    def groups(self) -> dict[str, float]:
        shown = {tags[1]: value for (name, tags), value in self.gauges.items() if name == "headgate_placement_groups"}
        return {state: number for state, number in shown.items() if number}


@pytest.fixture
def watched() -> Watched:
    return Watched()


A_GROUP = events.GroupCreated("g-1", "rlhf", True, ("n-1",), 0.02)
PLACED = events.WorkPlaced("rollout", "rlhf", "g-1", "reserved_group", 0.01)
STARTED = events.WorkStarted("rollout", "rlhf", "g-1", 0.02)
PREEMPTED = events.WorkPreempted("rollout", "rlhf", "train", "label_based_preemption", 40.0, 12.5, True, 0.25, True)


def test_the_names_and_tags_that_dashboards_know_are_kept() -> None:
    assert {name: PLACEMENT_METRICS[name].labels for name in SEEDS} == SEEDS


def test_latencies_are_histograms_and_ray_adds_to_the_names() -> None:
    assert {m.kind for n, m in PLACEMENT_METRICS.items() if n.endswith(("_ms", "_creation_seconds"))} == {"histogram"}
    assert (
        exported_name(PLACEMENT_METRICS["schedulemesh_preemption_count"]) == "ray_schedulemesh_preemption_count_total"
    )
    assert exported_name(PLACEMENT_METRICS["headgate_placement_groups"]) == "ray_headgate_placement_groups"


def test_a_preemption_is_counted_with_its_pool_its_reason_and_its_cost(watched: Watched) -> None:
    watched.tell(A_GROUP, PLACED, STARTED)
    watched.tell(events.PreemptionPlanned("train", "rlhf", ("rollout",), 12.5, "label_based_preemption", 0.3))
    watched.tell(PREEMPTED)
    tags = ("rlhf", "label_based_preemption")
    assert watched.counts["schedulemesh_preemption_count", tags] == 1
    assert watched.counts["headgate_placement_preemptions", tags] == 1
    assert watched.counts["schedulemesh_preemption_execution_latency_ms", tags] == 250.0
    assert watched.counts["schedulemesh_preemption_evaluation_latency_ms", ("rlhf",)] == 0.3
    assert watched.counts["headgate_placement_lost_work_seconds", tags] == 12.5


def test_a_start_says_which_step_placed_it_and_on_what_kind_of_group(watched: Watched) -> None:
    watched.tell(A_GROUP, PLACED, STARTED)
    assert watched.counts["schedulemesh_task_schedule_latency_ms", ("rlhf", "reserved_group", "reserved")] == 20.0
    assert watched.counts["schedulemesh_task_submit_latency_ms", ("rlhf", "reserved_group")] == 10.0
    assert watched.counts["schedulemesh_schedule_success_count", ("rlhf", "reserved_group")] == 1


def test_a_group_is_held_from_the_promise_to_the_end_of_its_work(watched: Watched) -> None:
    watched.tell(A_GROUP)
    assert watched.groups() == {"free": 1}
    watched.tell(PLACED)
    assert watched.groups() == {"held": 1}
    watched.tell(STARTED, events.WorkEnded("rollout", "rlhf", "done", "", 3.0))
    assert watched.groups() == {"free": 1}
    watched.tell(events.GroupRemoved("g-1", "rlhf", True))
    assert watched.groups() == {}


def test_a_group_that_is_made_for_a_request_is_held_from_the_start(watched: Watched) -> None:
    watched.tell(PLACED, A_GROUP)
    assert watched.groups() == {"held": 1}


def test_a_group_is_quarantined_until_its_work_is_seen_dead(watched: Watched) -> None:
    watched.tell(A_GROUP, PLACED, STARTED, events.GroupQuarantined("g-1", "rlhf", "rollout"))
    assert watched.groups() == {"quarantined": 1}
    assert watched.counts["headgate_placement_quarantines", ("rlhf",)] == 1
    watched.tell(PREEMPTED)
    assert watched.groups() == {"free": 1}


def test_a_group_that_was_promised_to_a_preemptor_is_never_shown_as_free(watched: Watched) -> None:
    watched.tell(A_GROUP, PLACED, STARTED, events.WorkPlaced("train", "rlhf", "g-1", "preemption", 0.0))
    shown = [r.tags[1] for r in watched.tell(PREEMPTED) if r.name == "headgate_placement_groups" and r.value]
    assert shown == ["held"]


def test_waiting_and_running_follow_a_request_through_its_preemption(watched: Watched) -> None:
    seen = []
    for event in (
        events.WorkQueued("rollout", "rlhf", 3.0, "new"),
        STARTED,
        PREEMPTED,
        events.WorkQueued("rollout", "rlhf", 3.0, "preempted"),
        events.WorkEnded("rollout", "rlhf", "withdrawn", "", 0.0),
    ):
        watched.tell(event)
        gauges = watched.gauges
        seen.append(tuple(gauges.get((f"headgate_placement_{w}", ("rlhf",)), 0) for w in ("waiting", "running")))
    assert seen == [(1, 0), (0, 1), (0, 0), (1, 0), (0, 0)]


def test_a_restored_ledger_shows_what_it_found() -> None:
    shape = GroupShape((amounts(cpu=1),))
    group = Group("g-1", "rlhf", shape, 0, 3, GroupState.HELD, ("n-1",), "train", 2, 0.0)
    made = Group("g-2", "rlhf", shape, None, 1, GroupState.CREATING, ("n-1",), None, 0, 0.0)
    work = [
        Occupancy(PlacementRequest(name, "rlhf", shape.bundles), "d", 0.0, order, stage)
        for order, (name, stage) in enumerate(
            [("train", Stage.RUNNING), ("reward", Stage.WAITING), ("old", Stage.DONE)]
        )
    ]
    found = {(r.name, r.tags): r.value for r in Meter().seed([group, made], work)}
    assert found == {
        ("headgate_placement_groups", ("rlhf", "held")): 1,
        ("headgate_placement_running", ("rlhf",)): 1,
        ("headgate_placement_waiting", ("rlhf",)): 1,
    }


PLACEMENT_EVENTS = [cls for cls in event_classes() if cls.__module__.endswith(".placement")]


@given(st.lists(st.one_of(*map(instances, PLACEMENT_EVENTS)), max_size=20))
def test_any_events_in_any_order_give_readings_that_a_metric_takes(told: list[events.Event]) -> None:
    watched = Watched()
    for event in told:
        for reading in watched.tell(event):
            assert len(reading.tags) == len(PLACEMENT_METRICS[reading.name].labels)
            assert reading.value >= 0


@pytest.mark.parametrize("cls", PLACEMENT_EVENTS, ids=lambda cls: cls.__name__)
def test_every_event_of_placement_is_metered_but_that_of_pools(cls: type[events.Event]) -> None:
    assert (cls in COUNTS) == (cls is not events.PoolChanged)
