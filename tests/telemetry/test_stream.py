from __future__ import annotations

import itertools
import logging
import threading

import pytest

from headgate.core import events
from headgate.core.events import Event
from headgate.telemetry import EventStream
from tests.telemetry.factories import START, FixedClock
from tests.telemetry.memory import MemorySink

WARNED = events.QueueWarned(5234, 5000)
PAUSED = events.QueuePaused(8123, 8000)


class FailingSink:
    """Raises the given exceptions in turn."""

    def __init__(self, *raised: Exception) -> None:
        self._raised = itertools.cycle(raised)
        self.calls = 0

    @property
    def handlers(self):
        return {Event: self._raise}

    def close(self) -> None:
        pass

    def _raise(self, recorded) -> None:
        self.calls += 1
        raise next(self._raised)


def test_an_event_is_stamped_with_sequence_wall_and_monotonic_time():
    memory = MemorySink()
    stream = EventStream(FixedClock(), [memory])
    stream.emit(WARNED)
    stream.emit(PAUSED)
    assert [tuple(recorded) for recorded in memory.recorded] == [(1, START, 12.5, WARNED), (2, START, 12.5, PAUSED)]


def test_a_sink_gets_only_the_types_that_it_wants_and_sees_the_gap():
    memory = MemorySink(wants=[events.QueuePaused])
    stream = EventStream(FixedClock(), [memory])
    stream.emit(WARNED)
    stream.emit(PAUSED)
    assert [(recorded.sequence, recorded.event) for recorded in memory.recorded] == [(2, PAUSED)]


def test_a_failing_sink_hinders_neither_the_emitter_nor_the_other_sinks(caplog):
    failing, memory = FailingSink(OSError("no space")), MemorySink()
    stream = EventStream(FixedClock(), [failing, memory])
    with caplog.at_level(logging.ERROR, "headgate.telemetry"):
        stream.emit(WARNED)
        stream.emit(PAUSED)
    assert memory.of(Event) == [WARNED, PAUSED]
    assert failing.calls == 2


def test_a_sinks_failure_is_reported_once_per_kind_with_its_traceback_and_counted(caplog):
    stream = EventStream(FixedClock(), [FailingSink(OSError("no space"), KeyError("x"))])
    with caplog.at_level(logging.ERROR, "headgate.telemetry"):
        for _ in range(6):
            stream.emit(WARNED)
    assert [type(record.exc_info[1]) for record in caplog.records] == [OSError, KeyError]
    assert all("_raise" in record.exc_text for record in caplog.records)
    assert stream.failures == {"FailingSink: OSError": 3, "FailingSink: KeyError": 3}


def test_a_sink_can_be_added_and_removed_between_events():
    memory = MemorySink()
    stream = EventStream(FixedClock())
    stream.emit(WARNED)
    stream.add(memory)
    stream.emit(PAUSED)
    stream.remove(memory)
    stream.emit(WARNED)
    assert memory.of(Event) == [PAUSED]


def test_what_is_emitted_after_close_goes_nowhere():
    memory = MemorySink()
    stream = EventStream(FixedClock(), [memory])
    stream.close()
    stream.emit(WARNED)
    assert memory.recorded == ()


def test_threads_that_emit_together_never_share_a_sequence_number():
    memory = MemorySink()
    stream = EventStream(FixedClock(), [memory])
    threads = [threading.Thread(target=lambda: [stream.emit(WARNED) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recorded.sequence for recorded in memory.recorded) == list(range(1, 2001))


def test_the_memory_sink_keeps_the_newest_and_counts_what_made_room():
    memory = MemorySink(capacity=2)
    stream = EventStream(FixedClock(), [memory])
    for size in range(5):
        stream.emit(events.QueueWarned(size, 1))
    assert [event.size for event in memory.of(events.QueueWarned)] == [3, 4]
    assert memory.dropped == 3


def test_a_memory_sink_without_room_is_refused():
    with pytest.raises(ValueError, match=r"capacity must be >= 1 \(got 0\)"):
        MemorySink(capacity=0)
