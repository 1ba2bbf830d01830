"""Requests to stop: a flow run is stopped by a signal or by its state in the API, a demo by a signal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A request to stop one run. Owned by the run; set at most once, and never withdrawn.

    Attributes:
        event: set when the run should stop; a campaign then drains.
        reason: the reason in words; None until then.
        signal: the number of the signal that requested it; None if something else did.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reason: str | None = None
        self.signal: signal.Signals | None = None

    def ask(self, reason: str, number: signal.Signals | None = None) -> None:
        """Request a stop; the first reason is kept."""
        if self.reason is None:
            self.reason, self.signal = reason, number
            self.event.set()


@contextmanager
def stop_on_signals(request: StopRequest) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into a stop request while the context lasts, then restore the previous handlers.

    Prefect's own handler raises an exception inside whatever the event loop is doing, which no drain survives. A second
    Ctrl-C abandons what is in progress. Outside the main thread signals cannot be handled, and nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def asked(number: signal.Signals) -> None:
        if number is signal.SIGINT and request.reason is not None and task is not None:
            task.cancel()
        request.ask(f"{number.name} was received", number)

    for number in SIGNALS:
        loop.add_signal_handler(number, asked, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Cancel this task on the first SIGINT or SIGTERM; further ones do not shorten its cleanup, which takes seconds."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_asked = False

    def ask() -> None:
        nonlocal is_asked
        if not is_asked and task is not None:
            is_asked = True
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
