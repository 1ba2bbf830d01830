"""What happens to placement groups: in the log and in traces."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headgate.core import events
from headgate.telemetry import LogSink, Recorded, convert_events
from tests.telemetry.test_perfetto import Told
from tests.telemetry.trace_format import name_of_process, read_trace, slices


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path / "events.jsonl")


def a_preemption(told: Told) -> None:
    told.at(0.0, events.GroupCreated("g-1", "rlhf", True, ("n-1",), 0.01))
    told.at(0.0, events.WorkQueued("rollout", "rlhf", 3.0, "new"))
    told.at(1.0, events.WorkPlaced("rollout", "rlhf", "g-1", "reserved", 1.0))
    told.at(1.0, events.WorkStarted("rollout", "rlhf", "g-1", 1.0))
    told.at(5.0, events.WorkQueued("train", "rlhf", 9.0, "new"))
    told.at(5.0, events.PreemptionPlanned("train", "rlhf", ("rollout",), 4.0, "label_based_preemption", 0.2))
    told.at(6.0, events.WorkPreempted("rollout", "rlhf", "train", "label_based_preemption", 5.0, 4.0, True, 0.5, True))
    told.at(6.0, events.WorkQueued("rollout", "rlhf", 3.0, "preempted"))
    told.at(6.0, events.WorkStarted("train", "rlhf", "g-1", 1.0))
    told.at(9.0, events.WorkEnded("train", "rlhf", "done", "", 3.0))


def test_who_held_a_group_lies_on_its_track_one_after_the_other(told: Told, tmp_path: Path) -> None:
    a_preemption(told)
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    (rollout,), (train,) = slices(found, "rollout"), slices(found, "train")
    assert (rollout["ts"], rollout["dur"], train["ts"], train["dur"]) == (1e6, 5e6, 6e6, 3e6)
    assert (rollout["pid"], rollout["tid"]) == (train["pid"], train["tid"])
    assert name_of_process(found, train["pid"]) == "pool rlhf"
    assert rollout["args"]["ended_by"] == "work_preempted"
    assert rollout["args"]["by"] == "train"


def test_each_wait_in_line_is_drawn_also_that_of_a_victim_which_still_waits(told: Told, tmp_path: Path) -> None:
    a_preemption(told)
    convert_events(told.write(), tmp_path / "trace.json")
    waits = [e for e in read_trace(tmp_path / "trace.json") if e["ph"] in "be" and "in line" in e["name"]]
    begun = [(e["name"], e["ts"] / 1e6, e["args"]["left"]) for e in waits if e["ph"] == "b"]
    assert begun == [
        ("rollout in line", 0.0, "started"),
        ("train in line", 5.0, "started"),
        ("rollout in line", 6.0, "still waiting"),
    ]


def test_running_and_waiting_are_counted_by_pool(told: Told, tmp_path: Path) -> None:
    a_preemption(told)
    convert_events(told.write(), tmp_path / "trace.json")
    found = [e for e in read_trace(tmp_path / "trace.json") if e["ph"] == "C"]
    assert [e["args"]["requests"] for e in found if e["name"] == "running"] == [1, 0, 1, 0]
    assert [e["args"]["requests"] for e in found if e["name"] == "waiting"] == [1, 0, 1, 2, 1, 0]


def test_the_track_of_a_removed_group_serves_the_next_one(told: Told, tmp_path: Path) -> None:
    for number in (1, 2):
        told.at(number * 2.0, events.WorkStarted(f"w-{number}", "p", f"g-{number}", 0.0))
        told.at(number * 2.0 + 1, events.WorkEnded(f"w-{number}", "p", "done", "", 1.0))
        told.at(number * 2.0 + 1, events.GroupRemoved(f"g-{number}", "p", False))
    convert_events(told.write(), tmp_path / "trace.json")
    assert len({e["tid"] for e in slices(read_trace(tmp_path / "trace.json"), "w-")}) == 1


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (events.WorkQueued("w", "p", 5.0, "new"), logging.DEBUG),
        (events.PreemptionPlanned("w", "p", ("v",), 1.0, "label_based_preemption", 0.1), logging.INFO),
        (events.WorkPreempted("v", "p", "w", "label_based_preemption", 1.0, 1.0, True, 0.1, True), logging.INFO),
        (events.WorkLost("w", "p", "node died", 1), logging.WARNING),
        (events.GroupQuarantined("g", "p", "w"), logging.WARNING),
        (events.PlacementDiffers("leaked group", "g", False), logging.WARNING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_costs_work_stands_in_the_log_and_what_goes_well_only_in_its_details(
    event: events.Event, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="headgate")
    (write,) = LogSink().handlers.values()
    write(Recorded(1, 0.0, 0.0, event))
    assert [record.levelno for record in caplog.records] == [level]
