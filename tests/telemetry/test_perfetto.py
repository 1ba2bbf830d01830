"""Files of events become traces that a viewer shows whole."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import errors, events
from headgate.telemetry import EventStream, JsonlSink, convert_events, event_name
from headgate.telemetry.fields import event_fields
from tests.telemetry.event_strategies import event_classes, instances
from tests.telemetry.factories import START, sample
from tests.telemetry.trace_format import name_of_process, read_trace, slices

REQUEST = {
    "provider": "http://p/v1",
    "model": "small",
    "domain": "chat",
    "group": "acme/small@main",
    "request_id": "q-1",
    "task_id": "t-1",
    "trace_id": "0" * 32,
}


class Told:
    """Events told at chosen times, in a file."""

    def __init__(self, path: Path, run: str = "r-1", wall: float = START, monotonic: float = 100.0) -> None:
        self.path, self.run, self.offset, self.monotonic = path, run, wall - monotonic, monotonic
        self.lines: list[bytes] = []

    def at(self, seconds: float, event: events.Event) -> None:
        monotonic = self.monotonic + seconds
        line = {
            "sequence": len(self.lines) + 1,
            "wall": monotonic + self.offset,
            "monotonic": monotonic,
            "run": self.run,
            "event": event_name(type(event)),
            "fields": event_fields(event),
        }
        self.lines.append(json.dumps(line).encode())

    def write(self) -> Path:
        with self.path.open("ab") as file:
            file.write(b"\n".join(self.lines) + b"\n")
        self.lines = []
        return self.path


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path / "events.jsonl")


def a_task_with_a_refusal(told: Told) -> None:
    told.at(0.0, events.TasksEnqueued("acme/small@main", 1, 1))
    told.at(2.0, events.TaskStarted("t-1", "acme/small@main", "affine:sat", 2.0, "0" * 32))
    told.at(2.0, events.RequestWaitStarted(**REQUEST, attempt=1, reason="limit", waiters=1))
    told.at(3.0, events.RequestWaitCompleted(**REQUEST, attempt=1, lease_id="l-1", waited_s=1.0))
    told.at(3.0, events.RequestLeaseAcquired(**REQUEST, attempt=1, lease_id="l-1", limit=8, in_flight=1))
    told.at(3.5, events.RequestRateLimited(**REQUEST, attempt=1, lease_id="l-1", retry_after_s=None, blocked_s=2.0))
    told.at(3.5, events.RequestLimitDecreased("http://p/v1", "small", "chat", 8, 6, "rate_limited", 8))
    told.at(3.5, events.RequestLeaseReleased(**REQUEST, attempt=1, lease_id="l-1", outcome="rate_limited", held_s=0.5))
    told.at(3.5, events.RequestFinished("acme/small@main", "rate_limited", 0.5, 429, 0, 0, "q-1", 1, "l-1", "t-1"))
    told.at(3.5, events.RequestDelayed("acme/small@main", "rate_limited", 2.0, 1, "q-1", "t-1"))
    told.at(6.0, events.RequestFinished("acme/small@main", "success", 0.5, 200, 9, 3, "q-1", 2, "l-2", "t-1"))
    told.at(6.1, events.SampleAccepted(sample(latency_s=4.0)))
    told.at(7.0, events.RequestLimitIncreased("http://p/v1", "small", "chat", 6, 7, "successes"))


def test_a_task_s_waits_attempts_and_back_offs_lie_within_it(told: Told, tmp_path: Path) -> None:
    a_task_with_a_refusal(told)
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    (task,) = slices(found, "affine:sat")
    assert (task["ts"], task["dur"]) == (2e6, 4e6)
    assert task["args"]["trace_id"] == "0" * 32
    assert name_of_process(found, task["pid"]) == "model acme/small@main"
    within = sorted(
        (e for e in found if e["ph"] == "X" and e["pid"] == task["pid"] and e is not task), key=lambda e: e["ts"]
    )
    assert [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in within] == [
        ("wait for admission", 2.0, 1.0),
        ("request 1 rate_limited", 3.0, 0.5),
        ("back-off", 3.5, 2.0),
        ("request 2 success", 5.5, 0.5),
    ]


def test_the_wait_in_the_queue_is_drawn_before_the_task(told: Told, tmp_path: Path) -> None:
    a_task_with_a_refusal(told)
    convert_events(told.write(), tmp_path / "trace.json")
    begin, end = (e for e in read_trace(tmp_path / "trace.json") if e["name"] == "queued")
    assert (begin["ts"], end["ts"]) == (0.0, 2e6)


def test_limits_are_drawn_as_they_change_and_a_refusal_points_at_its_cut(told: Told, tmp_path: Path) -> None:
    a_task_with_a_refusal(told)
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    assert [(e["name"], e["ts"] / 1e6) for e in slices(found, "limit")] == [
        ("limit 8", 3.0),
        ("limit 6", 3.5),
        ("limit 7", 7.0),
    ]
    assert [(e["ph"], e["ts"]) for e in found if e["ph"] in "sf"] == [("s", 3.5e6), ("f", 3.5e6)]
    assert [e["args"]["requests"] for e in found if e["ph"] == "C" and e["name"] == "limit"] == [8, 6, 7]
    assert [e["args"]["requests"] for e in found if e["ph"] == "C" and e["name"] == "in flight"] == [1, 0]
    assert [e["name"] for e in found if e["ph"] == "i" and e["name"] == "429"] == ["429"]
    assert [e["ts"] for e in found if e["name"] == "cooldown"] == [3.5e6, 5.5e6]


def test_a_scheduling_run_is_drawn_from_its_leases(told: Told, tmp_path: Path) -> None:
    resources = (("workers", 1),)
    told.at(0.0, events.RowGroupAdmissionTargetChanged("s-1", 2, 4, "idle"))
    told.at(0.0, events.ReadyEnqueued("s-1", "t-1", "judge", "g", "m@main", resources, 1, "0" * 32))
    told.at(2.0, events.TaskLeaseAcquired("s-1", "t-1", "l-1", "judge", "g", "m@main", resources, "0" * 32))
    told.at(2.5, events.TaskParked("s-1", "t-1", "l-1", resources))
    told.at(4.0, events.TaskCompleted("s-1", "t-1", "judge", "g", "success", 2.0, "0" * 32))
    told.at(4.0, events.TaskLeaseReleased("s-1", "t-1", "l-1", "g", resources, 2.0))
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    (task,) = slices(found, "judge success")
    assert (task["ts"], task["dur"]) == (2e6, 2e6)
    assert [e["ts"] for e in found if e["name"] == "queued"] == [0.0, 2e6]
    assert [(e["pid"], e["tid"]) for e in found if e["name"] == "task_parked"] == [(task["pid"], task["tid"])]
    assert [e["args"] for e in found if e["name"] == "frontier target"] == [{"row groups": 4}]


def test_the_outcome_of_a_task_may_be_told_after_its_lease_and_a_task_may_run_again(told: Told, tmp_path: Path) -> None:
    resources = (("workers", 1),)
    for start, outcome in ((0.0, "deferred"), (5.0, "success")):
        told.at(start, events.TaskLeaseAcquired("s-1", "t-1", "l", "judge", "g", "m@main", resources, "0" * 32))
        told.at(start + 2.0, events.TaskLeaseReleased("s-1", "t-1", "l", "g", resources, 2.0))
        told.at(start + 2.0, events.TaskCompleted("s-1", "t-1", "judge", "g", outcome, 2.0, "0" * 32))
    told.at(9.0, events.TaskLeaseAcquired("s-1", "t-1", "l", "judge", "g", "m@main", resources, "0" * 32))
    told.at(10.0, events.TaskLeaseReleased("s-1", "t-1", "l", "g", resources, 1.0))
    convert_events(told.write(), tmp_path / "trace.json")
    drawn = slices(read_trace(tmp_path / "trace.json"), "judge")
    assert [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in sorted(drawn, key=lambda e: e["ts"])] == [
        ("judge deferred", 0.0, 2.0),
        ("judge success", 5.0, 2.0),
        ("judge", 9.0, 1.0),
    ]


def test_a_task_that_its_provider_did_not_admit_is_drawn_as_deferred(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.TaskStarted("t-1", "m@main", "affine:sat", 0.0, "0" * 32))
    told.at(3.0, events.TaskDeferred("t-1", "m@main", "affine:sat", "its provider admits nothing now", 1))
    convert_events(told.write(), tmp_path / "trace.json")
    assert [e["dur"] for e in slices(read_trace(tmp_path / "trace.json"), "affine:sat deferred")] == [3e6]


def test_a_campaign_s_task_ends_with_its_lease_and_shows_the_sample_that_follows(told: Told, tmp_path: Path) -> None:
    resources = (("workers", 1),)
    for number, start in ((1, 0.0), (2, 4.0)):
        task = f"t-{number}"
        told.at(start, events.TaskLeaseAcquired("s-1", task, "l", "sample", "m@main", "m@main", resources, "0" * 32))
        told.at(start, events.TaskStarted(task, "m@main", "affine:sat", 0.0, "0" * 32, "l", 1))
        told.at(start + 4.0, events.TaskLeaseReleased("s-1", task, "l", "m@main", resources, 4.0))
    told.at(9.0, events.SampleAccepted(sample(task_id="t-1", score=0.25, latency_s=4.0)))
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    first, second = sorted(slices(found, "affine:sat"), key=lambda e: e["ts"])
    assert (first["ts"], first["dur"], first["args"]["score"]) == (0.0, 4e6, 0.25)
    assert (second["ts"], second["tid"]) == (4e6, first["tid"])


def test_a_task_that_has_not_ended_lasts_to_the_last_event(told: Told, tmp_path: Path) -> None:
    told.at(1.0, events.TaskStarted("t-1", "m@main", "affine:sat", 0.0, "0" * 32))
    told.at(9.0, events.QueueWarned(6_000, 5_000))
    convert_events(told.write(), tmp_path / "trace.json")
    (task,) = slices(read_trace(tmp_path / "trace.json"), "task")
    assert (task["ts"], task["dur"], task["args"]["outcome"]) == (0.0, 8e6, "still running")


def test_tasks_beside_each_other_take_the_lowest_free_slots(told: Told, tmp_path: Path) -> None:
    for number in range(3):
        told.at(0.0, events.TaskStarted(f"t-{number}", "m@main", "e", 0.0, "0" * 32))
    told.at(1.0, events.TaskReturned("t-1", "m@main", "e", "withdrawn"))
    told.at(2.0, events.TaskStarted("t-3", "m@main", "e", 0.0, "0" * 32))
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    assert {
        e["args"]["name"] for e in found if e["name"] == "thread_name" and e["args"]["name"].startswith("slot")
    } == {
        "slot 1",
        "slot 2",
        "slot 3",
    }


def test_requests_of_one_task_that_overlap_lie_beside_each_other(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    for number in range(3):
        told.at(4.0, events.RequestFinished("m@main", "success", 3.0, 200, 1, 1, f"q-{number}", 1, "", "t-1"))
    convert_events(told.write(), tmp_path / "trace.json")
    found = read_trace(tmp_path / "trace.json")
    assert len({e["tid"] for e in slices(found, "request")}) == 3


def test_requests_without_a_task_are_drawn_by_model(told: Told, tmp_path: Path) -> None:
    told.at(4.0, events.RequestFinished("m@main", "success", 3.0, 200, 1, 1))
    convert_events(told.write(), tmp_path / "trace.json")
    begin, end = (e for e in read_trace(tmp_path / "trace.json") if e["ph"] in "be")
    assert name_of_process(read_trace(tmp_path / "trace.json"), begin["pid"]) == "model m@main"
    assert end["ts"] - begin["ts"] <= 3e6


def test_a_clock_that_was_set_back_does_not_bend_the_trace(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    told.offset -= 3_600
    told.at(5.0, events.TaskReturned("t-1", "m@main", "e", "withdrawn"))
    convert_events(told.write(), tmp_path / "trace.json")
    (task,) = slices(read_trace(tmp_path / "trace.json"), "e returned")
    assert task["dur"] == 5e6


def test_runs_in_one_file_have_groups_of_their_own(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    told.at(1.0, events.TaskReturned("t-1", "m@main", "e", "stopping"))
    told.write()
    later = Told(told.path, run="r-2", wall=START + 60, monotonic=5.0)
    later.at(0.0, events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    later.at(2.0, events.TaskReturned("t-1", "m@main", "e", "stopping"))
    made = convert_events(later.write(), tmp_path / "trace.json")
    assert made.runs == 2
    first, second = sorted(slices(read_trace(tmp_path / "trace.json"), "e returned"), key=lambda e: e["ts"])
    assert (first["ts"], second["ts"], second["dur"]) == (0.0, 60e6, 2e6)
    assert first["pid"] != second["pid"]


def test_rotated_files_are_read_from_the_oldest(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    told.write().rename(tmp_path / "events.jsonl.2")
    told.at(1.0, events.RequestFinished("m@main", "success", 0.5, 200, 1, 1, "q", 1, "", "t-1"))
    told.write().rename(tmp_path / "events.jsonl.1")
    told.at(2.0, events.TaskReturned("t-1", "m@main", "e", "withdrawn"))
    made = convert_events(told.write(), tmp_path / "trace.json")
    assert made.events == 3
    assert len(slices(read_trace(tmp_path / "trace.json"), "e returned")) == 1


def test_lines_that_are_no_events_are_left_out_and_counted(told: Told, tmp_path: Path, caplog) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    told.lines += [b"", b"{", b"[]", b'{"event": "x"}', b"\xff", b'{"wall":"x","event":"e","fields":{}}']
    told.at(1.0, events.QueueWarned(6_000, 5_000))
    made = convert_events(told.write(), tmp_path / "trace.json")
    assert (made.events, made.unreadable) == (2, 6)
    assert "6 lines are not events" in caplog.text


def test_a_compressed_trace_is_the_same_trace(told: Told, tmp_path: Path) -> None:
    a_task_with_a_refusal(told)
    convert_events(told.write(), tmp_path / "trace.json")
    convert_events(told.path, tmp_path / "trace.json.gz")
    assert gzip.decompress((tmp_path / "trace.json.gz").read_bytes()) == (tmp_path / "trace.json").read_bytes()


def test_a_file_that_is_not_there_or_holds_no_event_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="there is no file"):
        convert_events(tmp_path / "events.jsonl", tmp_path / "trace.json")
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(errors.InvalidInputError, match="holds no event"):
        convert_events(tmp_path / "events.jsonl", tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()


def test_an_output_that_cannot_be_written_is_refused(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    with pytest.raises(errors.InvalidInputError, match="cannot be written"):
        convert_events(told.write(), tmp_path / "missing" / "trace.json")


def test_events_are_never_overwritten_by_their_trace(told: Told) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    source = told.write()
    with pytest.raises(errors.InvalidInputError, match="would overwrite"):
        convert_events(source, source)
    assert source.stat().st_size > 0


def test_a_trace_that_finds_no_room_leaves_nothing_behind(told: Told, tmp_path: Path) -> None:
    for second in range(2_000):
        told.at(float(second), events.QueueWarned(6_000, 5_000))
    source = told.write()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(errors.InvalidInputError, match="cannot be written"):
            convert_events(source, tmp_path / "trace.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.parametrize("lines", ["", "no event\n"])
def test_a_trace_that_was_there_stays_when_no_other_can_be_made(tmp_path: Path, lines: str) -> None:
    (tmp_path / "events.jsonl").write_text(lines)
    (tmp_path / "trace.json").write_text("an earlier one")
    with pytest.raises(errors.InvalidInputError, match="holds no event"):
        convert_events(tmp_path / "events.jsonl", tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == "an earlier one"
    assert {path.name for path in tmp_path.iterdir()} == {"events.jsonl", "trace.json"}


def test_a_pipe_is_written_and_stays_a_pipe(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    source, pipe = told.write(), tmp_path / "trace.pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        convert_events(source, pipe)
        assert json.loads(os.read(reading, 1 << 16))["traceEvents"]
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def test_a_link_to_a_trace_stays_a_link(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    (tmp_path / "newest.json").symlink_to(tmp_path / "trace.json")
    convert_events(told.write(), tmp_path / "newest.json")
    assert (tmp_path / "newest.json").is_symlink()
    assert read_trace(tmp_path / "trace.json")


def test_an_event_of_a_later_version_is_a_mark(told: Told, tmp_path: Path) -> None:
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    told.write().write_bytes(told.path.read_bytes().replace(b"queue_warned", b"moon_rose"))
    convert_events(told.path, tmp_path / "trace.json")
    assert [e["ph"] for e in read_trace(tmp_path / "trace.json") if e["name"] == "moon_rose"] == ["i"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 10), st.one_of(*map(instances, event_classes()))), max_size=30))
def test_any_events_in_any_order_make_a_valid_trace(tmp_path_factory, told_at) -> None:
    told = Told(tmp_path_factory.mktemp("trace") / "events.jsonl")
    told.at(0.0, events.QueueWarned(6_000, 5_000))
    for seconds, event in sorted(told_at, key=lambda pair: pair[0]):
        told.at(seconds, event)
    trace = told.path.with_name("trace.json")
    convert_events(told.write(), trace)
    read_trace(trace)


@pytest.mark.long
def test_memory_does_not_grow_with_the_length_of_the_file(tmp_path: Path) -> None:
    def peak(tasks: int) -> int:
        path = tmp_path / f"{tasks}.jsonl"
        stream_of_tasks(path, tasks)
        tracemalloc.start()
        convert_events(path, tmp_path / "trace.json")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak(4_000) < peak(400) + 600_000  # events of 3 600 tasks are megabytes; other threads take some, too


def stream_of_tasks(path: Path, tasks: int) -> None:
    """Write a file in which eight tasks run at any time."""
    told, rng = Told(path), random.Random(1)
    for number in range(tasks):
        at = number * 0.1
        told.at(at, events.TaskStarted(f"t-{number}", f"m{number % 4}@main", "e", rng.random(), f"{number:032x}"))
        told.at(at, events.RequestFinished("m@main", "success", 0.05, 200, 1, 1, f"q-{number}", 1, "", f"t-{number}"))
        if number >= 8:
            told.at(at, events.SampleAccepted(sample(task_id=f"t-{number - 8}", latency_s=0.7)))
    told.write()


def test_what_the_event_stream_writes_is_what_the_trace_reads(tmp_path: Path) -> None:
    from headgate.core import SystemClock

    path = tmp_path / "events.jsonl"
    stream = EventStream(SystemClock(), [JsonlSink(path, run_id="r-9")])
    stream.emit(events.TaskStarted("t-1", "m@main", "e", 0.0, "0" * 32))
    stream.emit(events.TaskReturned("t-1", "m@main", "e", "withdrawn"))
    stream.close()
    made = convert_events(path, tmp_path / "trace.json")
    assert (made.events, made.runs) == (2, 1)
    found = read_trace(tmp_path / "trace.json")
    assert name_of_process(found, 1) == "campaign r-9"
