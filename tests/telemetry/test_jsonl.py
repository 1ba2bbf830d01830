from __future__ import annotations

import json
import os
import resource
import threading

import pytest

from headgate.core import Secret, errors, events
from headgate.telemetry import EventStream, JsonlSink
from tests.telemetry.factories import START, FixedClock, sample


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def stream_into(path, **options):
    sink = JsonlSink(path, **options)
    return EventStream(FixedClock(), [sink]), sink


@pytest.fixture
def file_size_limit():
    """Set how large a file this process may write: the nearest thing to a full disk that needs no rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_every_event_is_one_json_line(tmp_path):
    path = tmp_path / "events" / "log.jsonl"
    stream, _ = stream_into(path)
    stream.emit(events.QueuePaused(8123, 8000))
    stream.emit(events.RosterRefreshed(3, ("a@main",), (), 0))
    stream.close()
    assert lines_of(path) == [
        {
            "sequence": 1,
            "wall": START,
            "monotonic": 12.5,
            "event": "queue_paused",
            "fields": {"size": 8123, "threshold": 8000},
        },
        {
            "sequence": 2,
            "wall": START,
            "monotonic": 12.5,
            "event": "roster_refreshed",
            "fields": {"models": 3, "added": ["a@main"], "removed": [], "withdrawn_tasks": 0},
        },
    ]


def test_a_sample_is_written_by_column_without_its_conversation(tmp_path):
    path = tmp_path / "log.jsonl"
    stream, _ = stream_into(path)
    stream.emit(events.SampleAccepted(sample(score=float("nan"))))
    stream.close()
    (line,) = lines_of(path)
    assert line["fields"]["task_id"] == "t-1"
    assert line["fields"]["score"] is None
    assert "conversation" not in line["fields"]


def test_secrets_control_characters_and_lone_surrogates_do_not_reach_the_file(tmp_path):
    Secret("hunter2-hunter2")
    path = tmp_path / "log.jsonl"
    stream, _ = stream_into(path)
    stream.emit(events.RosterRefreshFailed("key hunter2-hunter2 \x1b[31mrefused\ud800", 3))
    stream.close()
    (line,) = lines_of(path)
    assert line["fields"]["error"] == "key [redacted] \\x1b[31mrefused\\ud800"


def test_files_rotate_by_size_and_the_oldest_goes(tmp_path):
    path = tmp_path / "log.jsonl"
    stream, sink = stream_into(path, max_bytes=1_000, keep=2)
    for size in range(3_000):
        stream.emit(events.QueueWarned(size, 1))
    stream.close()
    assert {file.name for file in tmp_path.iterdir()} == {"log.jsonl", "log.jsonl.1", "log.jsonl.2"}
    newest_last = lines_of(tmp_path / "log.jsonl.2") + lines_of(tmp_path / "log.jsonl.1") + lines_of(path)
    numbers = [line["sequence"] for line in newest_last]
    assert numbers == list(range(numbers[0], 3_001))
    assert sink.dropped == 0


def test_an_existing_file_is_continued(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        stream, _ = stream_into(path)
        stream.emit(events.QueueWarned(1, 1))
        stream.close()
    assert [line["sequence"] for line in lines_of(path)] == [1, 1]


def test_a_full_disk_drops_events_says_so_once_and_leaves_whole_lines(tmp_path, file_size_limit, caplog):
    path = tmp_path / "log.jsonl"
    stream, sink = stream_into(path)
    stream.emit(events.QueueWarned(0, 1))
    drained(sink)
    file_size_limit(path.stat().st_size + 50)  # room for half a line: every write is cut short
    for size in range(50):
        stream.emit(events.QueueWarned(size, 1))
    drained(sink)
    before = lines_of(path)
    file_size_limit(resource.RLIM_INFINITY)
    stream.emit(events.QueueWarned(99, 1))
    stream.close()
    assert [line["event"] for line in before] == ["queue_warned", "queue_paused"]
    assert sink.dropped == 51
    added = lines_of(path)[2:]
    assert [(line["event"], line["fields"]) for line in added] == [
        ("events_dropped", {"events": 51}),
        ("queue_warned", {"size": 99, "threshold": 1}),
    ]
    failed, recovered = [record.getMessage() for record in caplog.records]
    assert "cannot be written" in failed
    assert "again; 51 were dropped" in recovered


def drained(sink):
    """Return when the writer has dealt with everything that is queued now."""
    dealt_with = threading.Event()
    inner = sink._write

    def write_and_tell(batch):
        inner(batch)
        if any(recorded.event == events.QueuePaused(0, 0) for recorded in batch):
            dealt_with.set()

    sink._write = write_and_tell
    EventStream(FixedClock(), [sink]).emit(events.QueuePaused(0, 0))
    assert dealt_with.wait(10)


def test_a_writer_that_hangs_costs_bounded_memory_and_the_drops_are_counted(tmp_path):
    path = tmp_path / "log.jsonl"
    sink = JsonlSink(path, queue_events=10)
    writing, go_on = threading.Event(), threading.Event()
    inner = sink._append

    def hang(data):
        writing.set()
        assert go_on.wait(10)
        inner(data)

    sink._append = hang
    stream = EventStream(FixedClock(), [sink])
    stream.emit(events.QueueWarned(0, 1))
    assert writing.wait(10)
    for size in range(100):
        stream.emit(events.QueueWarned(size, 1))
    assert sink.dropped == 89
    go_on.set()
    stream.close()
    lines = lines_of(path)
    assert sum(line["event"] == "queue_warned" for line in lines) == 12
    assert [line["fields"] for line in lines if line["event"] == "events_dropped"] == [{"events": 89}]


def test_an_event_that_cannot_be_written_does_not_end_the_writer(tmp_path, caplog):
    path = tmp_path / "log.jsonl"
    stream, sink = stream_into(path)

    class Odd:
        def __str__(self):
            raise RuntimeError("no text")

    stream.emit(events.QueueWarned(Odd(), 1))
    drained(sink)
    stream.emit(events.QueueWarned(7, 1))
    stream.close()
    assert [line["fields"]["size"] for line in lines_of(path) if line["event"] == "queue_warned"] == [7]
    assert "RuntimeError: no text" in caplog.text


def test_closing_twice_is_legal_and_a_closed_sink_only_counts(tmp_path):
    sink = JsonlSink(tmp_path / "log.jsonl")
    stream = EventStream(FixedClock(), [sink])
    sink.close()
    sink.close()
    stream.emit(events.QueueWarned(1, 1))
    assert sink.dropped == 1


def test_the_file_is_not_readable_by_everyone(tmp_path):
    path = tmp_path / "log.jsonl"
    stream, _ = stream_into(path)
    stream.close()
    assert path.stat().st_mode & 0o007 == 0


def test_a_file_that_cannot_be_opened_is_a_setting_to_correct(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.InvalidSettingError, match=r"events cannot be written to .*/file/log\.jsonl"):
        JsonlSink(tmp_path / "file" / "log.jsonl")


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(errors.InvalidSettingError, match=r"events\.jsonl"):
        JsonlSink(tmp_path / "events.jsonl")


def test_every_line_names_its_run(tmp_path):
    path = tmp_path / "log.jsonl"
    stream, _ = stream_into(path, run_id="r-1")
    stream.emit(events.QueueWarned(1, 1))
    stream.close()
    assert [line["run"] for line in lines_of(path)] == ["r-1"]


def test_events_dropped_at_the_very_end_are_noted_when_the_file_closes(tmp_path, caplog):
    path = tmp_path / "log.jsonl"
    stream, sink = stream_into(path, queue_events=5)
    blocked, entered = threading.Event(), threading.Event()
    write = sink._write

    def held(batch):
        entered.set()
        blocked.wait()
        write(batch)

    sink._write = held
    stream.emit(events.QueueWarned(0, 1))
    entered.wait(5)
    for size in range(20):
        stream.emit(events.QueueWarned(size, 1))
    assert sink.dropped == 14
    assert caplog.text.count("dropped until it keeps up") == 1
    assert stream.dropped() == {"JsonlSink": 14}
    blocked.set()
    stream.close()
    assert sum(line["fields"]["events"] for line in lines_of(path) if line["event"] == "events_dropped") == 14


def test_a_name_that_becomes_a_secret_later_is_masked_from_then_on(tmp_path):
    path = tmp_path / "log.jsonl"
    stream, _ = stream_into(path)
    stream.emit(events.RosterRefreshFailed("velvet-orchid-7", 3))
    stream.close()
    assert lines_of(path)[0]["fields"]["error"] == "velvet-orchid-7"
    Secret("velvet-orchid-7")
    stream, _ = stream_into(path)
    stream.emit(events.RosterRefreshFailed("velvet-orchid-7", 3))
    stream.close()
    assert lines_of(path)[1]["fields"]["error"] == "[redacted]"
