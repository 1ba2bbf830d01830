"""Stopping the main thread wherever it is: by a signal that it gets from another thread of the same process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from headgate.jobqueue.worker.errors import LeaseLost
from headgate.jobqueue.worker.held_job import HeldJob


class Interrupts:
    """Raises `LeaseLost` in the main thread when its job must stop, and `SystemExit(143)` at SIGTERM.

    Installed by the main thread, for as long as a worker lives; elsewhere it does nothing. A SIGUSR1 that is not its
    own goes to whoever handled it before, and so does SIGTERM when somebody does.

    Args:
        terminated: exit status after SIGTERM.
    """

    def __init__(self, terminated: int) -> None:
        self._terminated = terminated
        self._job: HeldJob | None = None
        self._restore: list[Callable[[], object]] = []
        self._usr1_before: Any = signal.SIG_DFL

    def install(self) -> None:
        """Handle the signals from now on."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._usr1_before = signal.signal(signal.SIGUSR1, self._on_usr1)
        self._restore.append(lambda: signal.signal(signal.SIGUSR1, self._usr1_before or signal.SIG_DFL))
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_term)
            self._restore.append(lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def remove(self) -> None:
        """Handle them as before; legal twice."""
        while self._restore:
            self._restore.pop()()

    def watch(self, job: HeldJob | None) -> None:
        """Name the job that this thread works on; None when it works on none."""
        if not self._restore or threading.current_thread() is not threading.main_thread():
            return
        self._job = job
        if job is None:
            return
        job.lease.interrupt = lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        if job.is_lost:
            self._raise_for(job)

    def _on_usr1(self, number: int, frame: FrameType | None) -> None:
        job = self._job
        if job is not None and job.is_lost and not job.is_finished:
            self._raise_for(job)
        if callable(self._usr1_before):
            self._usr1_before(number, frame)

    def _raise_for(self, job: HeldJob) -> None:
        self._job = None  # once: what cleans up after it is not interrupted
        raise LeaseLost(job.loss)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # giving back is not interrupted by a second one
        raise SystemExit(self._terminated)
