"""The work that the benchmark places: idle work, work that stops when asked, and work that does not."""

from __future__ import annotations

import threading
import time


class Idle:
    """Work that does nothing until it is completed."""

    def ping(self) -> str:
        """Answer."""
        return "here"


class Cooperative:
    """Work that counts until it is asked to stop; the count is its state."""

    def __init__(self) -> None:
        self._count = 0
        self._stop = threading.Event()

    def run(self) -> int:
        """Count ten times a second."""
        while not self._stop.wait(0.1):
            self._count += 1
        return self._count

    def cancel(self, _request_id: str) -> int:
        """Stop and return the state."""
        self._stop.set()
        return self._count

    def restore(self, state: int) -> None:
        """Resume from a state."""
        self._count = state


class Stuck:
    """Work that does not react: it sleeps in C, and its `cancel` does not return either."""

    def run(self) -> None:
        """Sleep for an hour."""
        time.sleep(3_600)

    def cancel(self, _request_id: str) -> None:
        """Never return in time."""
        time.sleep(3_600)
