"""The event stream: every part emits events, every sink gets the events that it subscribes to."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from headgate.core import Clock, events

E = TypeVar("E", bound=events.Event)
_log = logging.getLogger("headgate.telemetry")


class Recorded(NamedTuple, Generic[E]):
    """An event with its place in the stream.

    A named tuple, because one is made per event and a frozen dataclass takes three times as long to build.

    Attributes:
        sequence: 1 for the first event of the process; gaps are events to which a sink does not subscribe.
        wall: seconds since the epoch, for display.
        monotonic: seconds of the stream's clock, for durations.
    """

    sequence: int
    wall: float
    monotonic: float
    event: E


Handler = Callable[[Recorded[Any]], None]


class Sink(Protocol):
    """Receives events. A handler returns at once; slow work belongs on the sink's own thread."""

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """Event type -> its handler. A type includes its subtypes: `Event` means every event."""

    def close(self) -> None:
        """Flush and release resources; idempotent."""


@runtime_checkable
class LossySink(Protocol):
    """A sink that drops events instead of waiting, and handles its own failures.

    Attributes:
        name: its name in metrics and warnings.
        dropped: number of events that it could not take.
        failures: kind of exception -> how often it was raised.
    """

    name: str
    dropped: int
    failures: Counter[str]


class EventStream:
    """Stamps events and passes them to the sinks, in the order in which the sinks were added.

    Owned by the process, one per process; `emit` may be called from any thread, everything else from the owner's.
    Invariant: `emit` never raises. A sink that does is reported with its traceback once per kind of exception, counted
    in `failures`, and called again with the next event.
    """

    def __init__(self, clock: Clock, sinks: Iterable[Sink] = ()) -> None:
        self._wall = clock.wall
        self._monotonic = clock.monotonic
        self._numbers = itertools.count(1)
        self._sinks: list[Sink] = list(sinks)
        self._table: dict[type[events.Event], tuple[tuple[Sink, Handler], ...]] = {}
        self.failures: Counter[str] = Counter()
        """`Sink: Exception` -> how often that sink raised it."""

    def add(self, sink: Sink) -> None:
        """Pass later events to `sink`, as far as it subscribes to them."""
        self._sinks.append(sink)
        self._table = {}

    def remove(self, sink: Sink) -> None:
        """Pass no more events to `sink`; it stays open."""
        self._sinks.remove(sink)
        self._table = {}

    def dropped(self) -> dict[str, int]:
        """Return how many events each sink dropped, by its name."""
        counts: Counter[str] = Counter()
        for sink in self._sinks:
            if isinstance(sink, LossySink):
                counts[sink.name] += sink.dropped
        return dict(counts)

    def failures_by_sink(self) -> dict[str, int]:
        """Return how often each sink raised, by its name."""
        counts: Counter[str] = Counter()
        for kind, count in self.failures.items():
            counts[kind.partition(":")[0]] += count
        for sink in self._sinks:
            if isinstance(sink, LossySink):
                counts[sink.name] += sum(sink.failures.values())
        return dict(counts)

    def emit(self, event: events.Event) -> None:
        """Stamp `event` and pass it to the sinks that subscribe to its type. Never raises, never blocks."""
        sequence = next(self._numbers)
        wanted = self._table.get(type(event))
        if wanted is None:
            wanted = self._resolved(type(event))
        if not wanted:
            return
        recorded = Recorded(sequence, self._wall(), self._monotonic(), event)
        for sink, handler in wanted:
            try:
                handler(recorded)
            except Exception as error:  # noqa: BLE001 - the boundary around sinks: reported below, the others go on
                self._report(sink, event, error)

    def close(self) -> None:
        """Close all sinks. Events emitted afterwards are discarded."""
        sinks, self._sinks, self._table = self._sinks, [], {}
        for sink in sinks:
            sink.close()

    def _resolved(self, kind: type[events.Event]) -> tuple[tuple[Sink, Handler], ...]:
        wanted: list[tuple[Sink, Handler]] = []
        for sink in self._sinks:
            handlers = sink.handlers
            handler = next((handlers[base] for base in kind.__mro__ if base in handlers), None)
            if handler is not None:
                wanted.append((sink, handler))
        self._table[kind] = tuple(wanted)
        return self._table[kind]

    def _report(self, sink: Sink, event: events.Event, error: Exception) -> None:
        kind = f"{type(sink).__name__}: {type(error).__name__}"
        self.failures[kind] += 1
        if self.failures[kind] == 1:
            _log.error(
                "a telemetry sink failed on %s (%s); the others go on, further failures of this kind are counted",
                type(event).__name__,
                kind,
                exc_info=error,
            )
