"""What the metrics of placement show follows from its events and from what the ledger holds."""

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


SHAPE = GroupShape((amounts(cpu=1),))


class Watched:
    """A meter of one reserved group, and what its readings add up to."""

    def __init__(self) -> None:
        held = Group("g-1", "rlhf", SHAPE, 0, 3, GroupState.HELD, ("n-1",), "train", 2, 0.0)
        self.groups = {"g-1": held}
        self.requests: dict[str, Occupancy] = {}
        self.meter = Meter(self.groups, self.requests)
        self.counts: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def tell(self, *told: events.Event) -> list[Reading]:
        found = [reading for event in told for reading in self.meter.take(event)]
        for reading in found:
            self.counts[reading.name, reading.tags] += reading.value
        return found

    def gauges(self) -> dict[tuple[str, tuple[str, ...]], float]:
        return {(reading.name, reading.tags): reading.value for reading in self.meter.gauges()}


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


def test_the_gauges_show_the_groups_and_requests_of_the_ledger_and_nothing_of_what_has_gone(watched: Watched) -> None:
    watched.groups["g-2"] = Group("g-2", "rlhf", SHAPE, None, 1, GroupState.CREATING, ("n-1",), None, 0, 0.0)
    for order, (name, stage) in enumerate(
        [("train", Stage.RUNNING), ("reward", Stage.WAITING), ("stops", Stage.STOPPING), ("old", Stage.DONE)]
    ):
        request = PlacementRequest(name, "rlhf", SHAPE.bundles)
        watched.requests[name] = Occupancy(request, "d", 0.0, order, stage)
    assert watched.gauges() == {
        ("headgate_placement_groups", ("rlhf", "held")): 1,
        ("headgate_placement_running", ("rlhf",)): 2,
        ("headgate_placement_waiting", ("rlhf",)): 1,
    }
    watched.requests.clear()
    watched.groups["g-1"].state = GroupState.FREE
    assert watched.gauges() == {
        ("headgate_placement_groups", ("rlhf", "free")): 1,
        ("headgate_placement_groups", ("rlhf", "held")): 0,
        ("headgate_placement_running", ("rlhf",)): 0,
        ("headgate_placement_waiting", ("rlhf",)): 0,
    }


PLACEMENT_EVENTS = [cls for cls in event_classes() if cls.__module__.endswith(".placement")]


@given(st.lists(st.one_of(*map(instances, PLACEMENT_EVENTS)), max_size=20))
def test_any_events_in_any_order_give_readings_that_a_metric_takes(told: list[events.Event]) -> None:
    watched = Watched()
    for event in told:
        for reading in watched.tell(event):
            assert len(reading.tags) == len(PLACEMENT_METRICS[reading.name].labels)
            assert reading.value >= 0


NOT_COUNTED = {events.PoolChanged, events.GroupRemoved, events.GroupBroken, events.WorkQueued}


@pytest.mark.parametrize("cls", PLACEMENT_EVENTS, ids=lambda cls: cls.__name__)
def test_every_event_of_placement_is_counted_but_those_that_the_gauges_show(cls: type[events.Event]) -> None:
    assert (cls in COUNTS) == (cls not in NOT_COUNTED)
