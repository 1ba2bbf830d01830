"""A sink on a separate thread: events that it cannot take are dropped and counted, without affecting samples."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from headgate.core import events
from headgate.telemetry.stream import Handler, Recorded, Sink

Item = TypeVar("Item")
_log = logging.getLogger("headgate.telemetry")


class Backlog(ABC, Generic[Item]):
    """A queue of at most `most` items for a thread that runs `_work`, in order.

    Items that do not fit, or come after `close`, are dropped and counted in `dropped`, with one warning per outage.
    """

    def __init__(self, name: str, most: int, *, close_within_s: float) -> None:
        if most < 1:
            raise ValueError(f"queue_events must be >= 1 (got {most})")
        self.name = name
        self.dropped = 0
        self.failures: Counter[str] = Counter()
        self._close_within_s = close_within_s
        self._queue: queue.Queue[Item | None] = queue.Queue(most + 1)
        self._lock = threading.Lock()
        """Protects `dropped` and `_is_behind`, which every emitting thread changes."""
        self._is_behind = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"headgate-{name}", daemon=True)

    def close(self) -> None:
        """Let the thread finish queued items and end; after `close_within_s` it is abandoned."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._close_within_s)
        self._thread.join(self._close_within_s)
        if self._thread.is_alive():
            left = self._queue.qsize()
            _log.warning("telemetry sink %s does not end; %d queued events are lost", self.name, left)

    def _put(self, item: Item) -> None:
        if not self._is_closed:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(item)
                if self._is_behind and self._queue.qsize() < self._queue.maxsize / 2:
                    self._is_behind = False  # it has caught up, so the next outage is reported again
                return
        self._drop(1)
        with self._lock:
            is_first, self._is_behind = not self._is_behind, True
        if is_first and not self._is_closed:
            _log.warning("telemetry sink %s does not keep up; events are dropped until it keeps up", self.name)

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items

    @abstractmethod
    def _work(self) -> None:
        """Process queued items up to the None that `close` adds; runs on the thread."""


_Call = tuple[Handler, Recorded[Any]]


class BackgroundSink(Backlog[_Call]):
    """Passes events to `sink` on a thread, in order, through a queue of at most `queue_events`.

    A sink that blocks only loses events: those that do not fit are dropped and counted in `dropped`, with one warning
    per outage. A sink that raises is reported with its traceback once per kind of exception, counted in `failures`, and
    called again with the next event. With `closes` false the inner sink is left open for its owner.

    Owned by the event stream; lives until `close`.
    """

    def __init__(
        self, sink: Sink, *, queue_events: int = 10_000, close_within_s: float = 5.0, closes: bool = True
    ) -> None:
        super().__init__(type(sink).__name__, queue_events, close_within_s=close_within_s)
        self._sink = sink
        self._closes = closes
        self._thread.start()
        self.handlers: Mapping[type[events.Event], Handler] = {
            kind: partial(self._take, handler) for kind, handler in self._sink.handlers.items()
        }

    def _take(self, handler: Handler, recorded: Recorded[Any]) -> None:
        self._put((handler, recorded))

    def _work(self) -> None:
        for handler, recorded in iter(self._queue.get, None):
            self._guarded(partial(handler, recorded))
        if self._closes:
            self._guarded(self._sink.close)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the boundary around a sink: reported below, work goes on
            kind = type(error).__name__
            self.failures[kind] += 1
            if self.failures[kind] == 1:
                _log.warning(
                    "telemetry sink %s failed (%s); further failures of this kind are counted",
                    self.name,
                    kind,
                    exc_info=error,
                )
