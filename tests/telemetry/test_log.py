from __future__ import annotations

import io
import json
import logging
import re

import pytest

from headgate.core import Secret, events
from headgate.telemetry import EventStream, LogSink, setup_logging
from tests.telemetry.factories import FixedClock, sample


@pytest.fixture
def logged():
    """Return a function that sets logging up and gives the stream it writes to; everything is undone afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("headgate")
    before = root.level, ours.level
    handlers = []

    def begin(verbosity=1, **options):
        written = io.StringIO()
        handlers.append(setup_logging(verbosity, stream=written, **options))
        return written

    yield begin
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])


def raised(message):
    """Return an exception that has a traceback."""
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        raise ValueError(message)
    return caught.value


def lines(written, *emitted):
    stream = EventStream(FixedClock(), [LogSink()])
    for event in emitted:
        stream.emit(event)
    return [line.split("] ", 1)[1] for line in written.getvalue().splitlines()]


def test_a_provider_that_wants_to_be_left_alone_for_long_is_told_of(logged):
    about = {"provider": "p", "model": "m", "domain": "chat", "group": "g", "request_id": "r", "attempt": 1}
    about |= {"task_id": "t", "trace_id": "", "lease_id": "l", "retry_after_s": None}
    written = logged()
    (told,) = lines(
        written, *(events.RequestRateLimited(**about, blocked_s=seconds) for seconds in (2.0, 59.0, 3600.0))
    )
    assert told.startswith("request_rate_limited provider=p model=m ")
    assert "blocked_s=3600" in told
    assert "WARNING" in written.getvalue()


def test_the_lines_that_log_filters_match_on_are_written_exactly(logged):
    assert lines(
        logged(),
        events.StatusReported(95, 3, 1234, 56, 12345, 12000),
        events.QueueWarned(5234, 5000),
        events.QueuePaused(8123, 8000),
        events.QueueResumed(2987, 3000, 12.0),
    ) == [
        "[STATUS] samplers=95 (paused=3) task_queue=1234 result_queue=56 enqueued=12345 dequeued=12000",
        "[TaskQueue] WARNING: Queue size 5234 exceeds warning threshold 5000",
        "[TaskQueue] PAUSED: Queue size 8123 exceeds pause threshold 8000",
        "[TaskQueue] RESUMED: Queue size 2987 below resume threshold 3000",
    ]


def test_a_paused_model_is_told_of_in_a_sentence_with_its_name_and_last_error(logged):
    assert lines(
        logged(),
        events.ModelPaused("acme/small@main", 123, 900.0, 3, 0, "HTTP 503: no"),
        events.ModelGivenUp("acme/small@main", 123, 5, "HTTP 503: no"),
    ) == [
        "acme/small@main paused for 15m 00s after 3 service errors in a row; the last: HTTP 503: no",
        "acme/small@main given up: its service failed through 5 pauses; the last: HTTP 503: no",
    ]


def test_other_events_are_key_value_lines(logged):
    assert lines(
        logged(),
        events.RosterRefreshed(3, ("a@main", "b@main"), (), 0),
        events.StoreFailed("b-1", 300, "bucket is gone", 12.5, 2),
    ) == [
        "roster_refreshed models=3 added=a@main,b@main removed=- withdrawn_tasks=0",
        'store_failed batch_id=b-1 rows=300 error="bucket is gone" retry_in_s=12.5 attempt=2',
    ]


def test_a_line_carries_time_level_and_logger(logged):
    written = logged()
    lines(written, events.QueuePaused(8123, 8000))
    assert " WARNING  [headgate] [TaskQueue] PAUSED" in written.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, ["store_failed"]),
        (1, ["store_failed", "roster_refreshed"]),
        (2, ["store_failed", "roster_refreshed", "task"]),
    ],
)
def test_verbosity_chooses_what_is_shown(logged, verbosity, shown):
    written = lines(
        logged(verbosity),
        events.StoreFailed("b-1", 300, "gone", 12.5, 2),
        events.RosterRefreshed(3, (), (), 0),
        events.TaskReturned("t-1", "a@main", "affine:sat", "drain"),
    )
    assert [line.split()[0] for line in written] == [name if name != "task" else "task_returned" for name in shown]


def test_model_output_cannot_break_a_line_or_drive_the_terminal(logged):
    event = events.SampleAccepted(sample(why='fine\n[STATUS] samplers=0\x1b]0;owned\x07 "quoted"\u202e'))
    (line,) = lines(logged(2), event)
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert 'why="fine\\\\n[STATUS] samplers=0\\\\x1b]0;owned' in line


def test_messages_of_libraries_and_tracebacks_are_redacted_and_sanitised_too(logged):
    Secret("swordfish-9000")
    written = logged()
    error = raised("key swordfish-9000 \x1b[2J refused")
    logging.getLogger("some.library").error("sent swordfish-9000 and sk-abcdefgh12345678", exc_info=error)
    text = written.getvalue()
    assert "swordfish-9000" not in text
    assert "sk-abcdefgh" not in text
    assert "\x1b" not in text
    assert "ValueError: key [redacted] \\x1b[2J refused" in text
    assert text.count("\n") > 3


def test_json_lines_carry_the_events_fields(logged):
    written = logged(json=True)
    EventStream(FixedClock(), [LogSink()]).emit(events.QueuePaused(8123, 8000))
    document = json.loads(written.getvalue())
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "WARNING",
        "logger": "headgate",
        "message": "[TaskQueue] PAUSED: Queue size 8123 exceeds pause threshold 8000",
        "sequence": 1,
        "event": "queue_paused",
        "fields": {"size": 8123, "threshold": 8000},
    }


def test_json_lines_hold_tracebacks_in_one_line(logged):
    written = logged(json=True)
    logging.getLogger("headgate.x").error("failed", exc_info=raised("no"))
    assert "ValueError: no" in json.loads(written.getvalue())["traceback"]


def test_setting_up_again_replaces_the_handler(logged):
    first, second = logged(), logged()
    lines(second, events.QueuePaused(1, 1))
    assert first.getvalue() == ""
    assert second.getvalue().count("PAUSED") == 1
