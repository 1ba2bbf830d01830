"""Calls by request id: who asks for what is being asked for already gets that answer, and nothing is sent twice."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, Final

AGAIN: Final = object()
"""The end of a call that whoever made it gave up: whoever else wants its answer has to ask for himself."""


class _Run:
    """One call that runs, and what those who follow it wait for."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: Future[Any] | None = None


class CallsInFlight:
    """The calls that run, by request id. Owned by an executor; used from event loops and threads at once.

    An id is known while its call runs and no longer: this makes a repeated request harmless, and is no cache.
    """

    __slots__ = ("_lock", "_runs")

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def lead(self, request_id: str) -> bool:
        """Return whether the caller is to make the call; False when it runs already."""
        run = _Run()
        return self._runs.setdefault(request_id, run) is run

    def follow(self, request_id: str) -> Future[Any] | None:
        """Return what will hold the end of a call that runs, `AGAIN` if it is given up; None when it has just ended."""
        with self._lock:
            run = self._runs.get(request_id)
            if run is None:
                return None
            if run.future is None:
                run.future = Future()
            return run.future

    def ended(self, request_id: str, result: object) -> None:
        """Give the result of a call to all who follow it."""
        future = self._over(request_id)
        if future is not None:
            future.set_result(result)

    def failed(self, request_id: str, error: BaseException, *, was_given_up: bool) -> None:
        """Give the error of a call to all who follow it, or let them ask again when the call was given up."""
        future = self._over(request_id)
        if future is None:
            return
        if was_given_up:
            future.set_result(AGAIN)
        else:
            future.set_exception(error)

    def _over(self, request_id: str) -> Future[Any] | None:
        with self._lock:
            return self._runs.pop(request_id).future
