"""A sink on a thread of its own: whatever it does, emitting never waits for it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headgate.core import events
from headgate.telemetry.stream import Handler, Recorded, Sink

_log = logging.getLogger("headgate.telemetry")
_Call = tuple[Handler, Recorded[Any]]


class BackgroundSink:
    """Hands events to `sink` on a thread, in order, over a queue of at most `queue_events`.

    A sink that blocks costs events and nothing else: what finds no room is dropped, counted in `dropped`, and warned of
    once per outage. A sink that raises is reported with its traceback once per kind of exception, counted in
    `failures`, and called again with the next event. With `closes` false the sink inside is left open for its owner.

    Owned by the event stream; lives until `close`.
    """

    def __init__(
        self, sink: Sink, *, queue_events: int = 10_000, close_within_s: float = 5.0, closes: bool = True
    ) -> None:
        if queue_events < 1:
            raise ValueError(f"queue_events must be >= 1 (got {queue_events})")
        self._sink = sink
        self._close_within_s = close_within_s
        self._closes = closes
        self._queue: queue.Queue[_Call | None] = queue.Queue(queue_events + 1)
        self._is_closed = False
        self._lock = threading.Lock()
        """Protects `dropped` and `_is_behind`, which every emitting thread changes."""
        self.dropped = 0
        self.failures: dict[str, int] = {}
        self._is_behind = False
        self._worker = threading.Thread(target=self._work, name=f"headgate-{self.name}", daemon=True)
        self._worker.start()

    @property
    def name(self) -> str:
        """The name of the sink inside, as warnings and metrics show it."""
        return type(self._sink).__name__

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """The types that the sink inside wants."""
        return {kind: partial(self._take, handler) for kind, handler in self._sink.handlers.items()}

    def close(self) -> None:
        """Let the sink finish what is queued and close it; a sink that does not within `close_within_s` is left."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._close_within_s)
        self._worker.join(self._close_within_s)
        if self._worker.is_alive():
            left = self._queue.qsize()
            _log.warning("telemetry sink %s does not end; %d events that it did not take are lost", self.name, left)

    def _take(self, handler: Handler, recorded: Recorded[Any]) -> None:
        if not self._is_closed:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait((handler, recorded))
                if self._is_behind and self._queue.qsize() < self._queue.maxsize / 2:
                    self._is_behind = False  # it has caught up: the next outage is told of again
                return
        with self._lock:
            self.dropped += 1
            is_first, self._is_behind = not self._is_behind, True
        if is_first and not self._is_closed:
            _log.warning("telemetry sink %s does not keep up; events are dropped until it does", self.name)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            handler, recorded = call
            self._guarded(partial(handler, recorded))
        if self._closes:
            self._guarded(self._sink.close)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the boundary around a sink: reported below, work goes on
            kind = type(error).__name__
            self.failures[kind] = self.failures.get(kind, 0) + 1
            if self.failures[kind] == 1:
                _log.warning(
                    "telemetry sink %s failed (%s); further failures of this kind are counted",
                    self.name,
                    kind,
                    exc_info=error,
                )
