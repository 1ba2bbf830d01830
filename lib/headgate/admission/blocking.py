"""Threads that wait for admission: each sleeps on its own event, and one of them keeps the time for all."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable

from headgate.admission.controller import AdmissionController
from headgate.admission.leases import Ticket
from headgate.core import Clock
from headgate.core.errors import BlocksEventLoopError


def refuse_inside_a_loop(called: str, instead: str) -> None:
    """Return if the thread may block.

    Raises:
        BlocksEventLoopError: if it runs an event loop, which would stand still.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlocksEventLoopError(
        f"{called} would block the running event loop", next_step=f"Await `{instead}` instead, or call it in a thread."
    )


class Sleepers:
    """The threads that wait. Owned by a `RequestAdmission`.

    A release wakes the one thread that it serves. What time alone changes is seen to by the *keeper*, the only thread
    that sleeps with a time-out; when it leaves, another one takes over. `lock` is the lock of the controller and
    protects everything here.
    """

    def __init__(self, lock: threading.Lock, controller: AdmissionController, clock: Clock) -> None:
        self._lock = lock
        self._controller = controller
        self._now = clock.monotonic
        self._asleep: dict[Ticket, threading.Event] = {}
        self._keeper: Ticket | None = None
        self._until = math.inf

    def wait(self, ticket: Ticket, carry_out: Callable[[], None]) -> None:
        """Return when `ticket` is answered. On an exception the caller cancels the ticket.

        Args:
            ticket: made by the caller, not yet waiting.
            carry_out: does what decisions entail; called without the lock.
        """
        woken = threading.Event()
        try:
            with self._lock:
                self._controller.request(ticket.item, self._now(), ticket)
                if ticket.flow is not None:
                    self._asleep[ticket] = woken
            carry_out()
            while ticket.lease is None and ticket.denied is None:
                self._sleep(ticket, woken)
                carry_out()
        finally:
            with self._lock:
                self._leave(ticket)

    def wake(self, ticket: Ticket) -> None:
        """Wake the thread that waits with `ticket`."""
        woken = self._asleep.get(ticket)
        if woken is not None:
            woken.set()

    def hurry(self, at: float) -> None:
        """Have the keeper wake at `at` if it sleeps for longer."""
        keeper = self._keeper
        if keeper is not None and at < self._until:
            self.wake(keeper)

    def _sleep(self, ticket: Ticket, woken: threading.Event) -> None:
        """Sleep until woken, or until something is due if this thread is the keeper."""
        timeout: float | None = None
        with self._lock:
            now = self._now()
            if self._controller.changes_at <= now:
                # What this entails is carried out before anybody sleeps.
                self._controller.tick(now)
                return
            if ticket.flow is None:
                return
            if self._keeper is None:
                self._keeper = ticket
            if self._keeper is ticket:
                self._until = self._controller.changes_at
                timeout = None if self._until == math.inf else min(self._until - now, threading.TIMEOUT_MAX)
        woken.wait(timeout)
        woken.clear()

    def _leave(self, ticket: Ticket) -> None:
        self._asleep.pop(ticket, None)
        if self._keeper is ticket:
            self._keeper = None
            self._until = math.inf
            heir = next(iter(self._asleep.values()), None)
            if heir is not None:
                heir.set()
