"""Workers for blocking simulators: a separate thread sends heartbeats and can interrupt the main thread."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from headgate.jobqueue.blocking import BlockingFacade, blocking
from headgate.jobqueue.errors import LeaseLost
from headgate.jobqueue.reserved_server import ReservedServer
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.held_job import ClaimedWork, HeldJob, may_pass
from headgate.jobqueue.worker.requests import QueueAddress
from headgate.jobqueue.worker.results import publish
from headgate.jobqueue.worker.worker import TERMINATED, Quota, Worker
from headgate.net.event_loop import LoopThread


class Interrupts:
    """Raises `LeaseLost` in the main thread when its job must stop, and `SystemExit(143)` on SIGTERM.

    Installed by the main thread for as long as a worker lives; in other threads it does nothing. A SIGUSR1 of another
    origin is passed to the previous handler; SIGTERM is left alone if it already has a handler.
    """

    def __init__(self) -> None:
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
        """Restore the previous handlers; may be called twice."""
        while self._restore:
            self._restore.pop()()

    def watch(self, job: HeldJob | None) -> None:
        """Set the job that this thread works on; None when it works on none."""
        if not self._restore or threading.current_thread() is not threading.main_thread():
            return
        self._job = job
        if job is None:
            return
        job.interrupt = lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        if job.is_lost:
            self._raise_for(job)

    def _on_usr1(self, number: int, frame: FrameType | None) -> None:
        job = self._job
        if job is not None and job.is_lost and not job.is_finished:
            self._raise_for(job)
        if callable(self._usr1_before):
            self._usr1_before(number, frame)

    def _raise_for(self, job: HeldJob) -> None:
        self._job = None  # once only: the cleanup after it is not interrupted
        raise LeaseLost(job.loss)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not interrupt giving the jobs back
        raise SystemExit(TERMINATED)


class SyncHeldJob(ClaimedWork, BlockingFacade[HeldJob]):
    """`HeldJob` with blocking methods, as a context manager around the work on it; the same rules apply.

    When the work must stop, `LeaseLost` is raised in the main thread wherever it is; in other threads at the next
    `check`, `progress` or other call. The context swallows it.
    """

    def __init__(self, job: HeldJob, loop: LoopThread, watch: Callable[[HeldJob | None], None]) -> None:
        ClaimedWork.__init__(self, job.spec, job.lease)
        BlockingFacade.__init__(self, job, loop)
        self._watch = watch

    @property
    def server(self) -> ReservedServer | None:
        """The policy server that the job has now."""
        return self._asynchronous.server

    def check(self) -> None:
        """Raise if the work must stop.

        Raises:
            LeaseLost: if it must.
        """
        if self.is_lost and not self.is_finished:
            raise LeaseLost(self.loss)

    def progress(self) -> None:
        """Report progress; see `HeldJob.progress`, and `check` for what it raises."""
        self.check()
        self._asynchronous.progress()

    @contextmanager
    def reserve(self, timeout_s: float | None = None) -> Iterator[ReservedServer]:
        """Hold a policy server for the duration of the context; see `HeldJob.reserve`."""
        server = self._loop.run(self._asynchronous.reserve_server(timeout_s))
        try:
            yield server
        finally:
            self._loop.run(self._asynchronous.release_server())

    complete = blocking(HeldJob.complete)
    fail = blocking(HeldJob.fail)
    give_back = blocking(HeldJob.give_back)
    publish = blocking(publish)

    def __enter__(self) -> Self:
        self._watch(self._asynchronous)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._watch(None)
        self._loop.run(self._asynchronous.end(error))
        return may_pass(error)


class SyncWorker:
    """`Worker` as a context manager for programs without asyncio; the same rules apply.

    Heartbeats continue while the program blocks. In the main thread, a lost lease raises `LeaseLost` at once (by
    SIGUSR1), and SIGTERM gives the job back and ends the program with status 143.
    """

    def __init__(self, address: str | QueueAddress | None = None, **options: Any) -> None:
        self._address = address
        self._options = options
        self._started: Future[Worker] = Future()
        self._loop = LoopThread("headgate-worker")
        self._interrupts = Interrupts()

    def __enter__(self) -> Self:
        self._loop.start(self._live())
        self._started.result()
        self._interrupts.install()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            for job in list(self._started.result().held.values()):
                self._loop.run(job.end(error))
        finally:
            self._loop.stop()
            self._interrupts.remove()

    @property
    def name(self) -> str:
        """The worker's name in its claims."""
        return self._started.result().name

    def jobs(
        self, *, stop_when_empty: bool = False, idle_s: float | None = None, max_jobs: int | None = None
    ) -> Iterator[SyncHeldJob]:
        """Yield one job after another; work on each inside `with job:`. The arguments are those of `Worker.jobs`."""
        worker = self._started.result()
        for _ in Quota(max_jobs):
            job = self._loop.run(worker.claim(0.0 if stop_when_empty else idle_s))
            if job is None:
                return
            yield SyncHeldJob(job, self._loop, self._interrupts.watch)
            self._loop.run(worker.put_away(job))

    async def _live(self) -> None:
        """Run the worker until the loop is stopped."""
        try:
            async with JobQueueClient(self._address) as client, Worker(client, **self._options) as worker:
                self._started.set_result(worker)
                await asyncio.Event().wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
