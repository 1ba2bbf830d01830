"""A sink that blocks or raises costs events and nothing else."""

from __future__ import annotations

import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from headgate.core import events
from headgate.telemetry import BackgroundSink, EventStream, register_losses
from tests.telemetry.factories import FixedClock


class Slow:
    """A sink that takes nothing before it is let go."""

    def __init__(self) -> None:
        self.free, self.entered = threading.Event(), threading.Event()
        self.taken: list[int] = []
        self.is_closed = False

    @property
    def handlers(self):
        return {events.QueueWarned: self._take}

    def _take(self, recorded) -> None:
        self.entered.set()
        self.free.wait()
        self.taken.append(recorded.event.size)

    def close(self) -> None:
        self.is_closed = True


class Broken(Slow):
    """A sink that raises."""

    def _take(self, recorded) -> None:
        raise OSError("no space left") if recorded.event.size % 2 else KeyError("x")

    def close(self) -> None:
        raise RuntimeError("close")


def warned(size: int) -> events.QueueWarned:
    return events.QueueWarned(size, 1)


@pytest.fixture
def slow():
    sink = Slow()
    yield sink
    sink.free.set()


def test_a_sink_that_blocks_never_holds_up_who_emits_and_loses_only_what_finds_no_room(slow, caplog) -> None:
    background = BackgroundSink(slow, queue_events=10)
    stream = EventStream(FixedClock(), [background])
    stream.emit(warned(0))
    slow.entered.wait(5)
    for size in range(1, 101):
        stream.emit(warned(size))
    assert background.dropped == 89  # 100 less the queue's ten and the place of its end
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Slow does not keep up" in caplog.text
    slow.free.set()
    stream.close()
    assert slow.taken == list(range(12))
    assert slow.is_closed


def test_a_second_outage_is_told_of_again(slow, caplog) -> None:
    background = BackgroundSink(slow, queue_events=2)
    stream = EventStream(FixedClock(), [background])
    for size in range(9):
        stream.emit(warned(size))
    slow.free.set()
    while len(slow.taken) < 9 - background.dropped:
        threading.Event().wait(0.001)
    slow.free.clear()
    for size in range(9):
        stream.emit(warned(size))
    assert caplog.text.count("does not keep up") == 2


def test_a_sink_that_never_ends_is_left_behind(slow, caplog) -> None:
    background = BackgroundSink(slow, queue_events=5, close_within_s=0.05)
    stream = EventStream(FixedClock(), [background])
    for size in range(4):
        stream.emit(warned(size))
    stream.close()
    assert "does not end" in caplog.text


def test_a_sink_that_raises_is_reported_once_per_kind_with_its_traceback(caplog) -> None:
    background = BackgroundSink(Broken())
    stream = EventStream(FixedClock(), [background])
    for size in range(10):
        stream.emit(warned(size))
    stream.close()
    assert background.failures == {"KeyError": 5, "OSError": 5, "RuntimeError": 1}
    reported = [record for record in caplog.records if record.exc_info]
    assert len(reported) == 3
    assert stream.failures == {}


def test_what_comes_after_the_end_is_dropped_and_counted(slow) -> None:
    slow.free.set()
    background = BackgroundSink(slow)
    (handler,) = background.handlers.values()
    background.close()
    background.close()
    handler(None)
    assert background.dropped == 1


def test_losses_are_metrics_by_sink(slow) -> None:
    registry = CollectorRegistry()
    stream = EventStream(FixedClock(), [BackgroundSink(slow, queue_events=1), BackgroundSink(Broken())])
    register_losses(registry, stream)
    for size in range(5):
        stream.emit(warned(size))
    slow.free.set()
    dropped = registry.get_sample_value("headgate_events_dropped_total", {"sink": "Slow"})
    assert dropped is not None
    assert dropped >= 2
    stream.add(raising := Broken())
    stream.emit(warned(1))
    assert registry.get_sample_value("headgate_sink_failures_total", {"sink": "Broken"}) >= 1
    stream.remove(raising)


def test_a_queue_of_no_events_is_refused() -> None:
    with pytest.raises(ValueError, match="queue_events must be >= 1"):
        BackgroundSink(Slow(), queue_events=0)
