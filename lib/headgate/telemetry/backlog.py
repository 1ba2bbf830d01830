"""A sink on a thread of its own: what it cannot take is dropped and counted, and costs no sample."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from typing import Generic, TypeVar

Item = TypeVar("Item")
_log = logging.getLogger("headgate.telemetry")


class Backlog(Generic[Item]):
    """Has at most `most` items wait for a thread that runs `_work`, in order.

    What finds no room, or comes after `close`, is dropped, counted in `dropped`, and warned of once per outage.
    """

    def __init__(self, name: str, most: int, *, close_within_s: float) -> None:
        if most < 1:
            raise ValueError(f"queue_events must be >= 1 (got {most})")
        self.name = name
        self.dropped = 0
        self._close_within_s = close_within_s
        self._queue: queue.Queue[Item | None] = queue.Queue(most + 1)
        self._lock = threading.Lock()
        """Protects `dropped` and `_is_behind`, which every emitting thread changes."""
        self._is_behind = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"headgate-{name}", daemon=True)

    def close(self) -> None:
        """Have the thread finish what waits, and end; one that does not within `close_within_s` is left."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._close_within_s)
        self._thread.join(self._close_within_s)
        if self._thread.is_alive():
            left = self._queue.qsize()
            _log.warning("telemetry sink %s does not end; %d events that it did not take are lost", self.name, left)

    def _put(self, item: Item) -> None:
        if not self._is_closed:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(item)
                if self._is_behind and self._queue.qsize() < self._queue.maxsize / 2:
                    self._is_behind = False  # it has caught up: the next outage is told of again
                return
        self._drop(1)
        with self._lock:
            is_first, self._is_behind = not self._is_behind, True
        if is_first and not self._is_closed:
            _log.warning("telemetry sink %s does not keep up; events are dropped until it keeps up", self.name)

    def _drop(self, items: int) -> None:
        with self._lock:
            self.dropped += items

    def _next(self, at_most: int) -> tuple[list[Item], bool]:
        """Return what comes next, and whether it is the last; waits for the first item."""
        batch: list[Item] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == at_most:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _work(self) -> None:
        raise NotImplementedError
