"""The worker for simulators that block: its heartbeat goes on in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from headgate.jobqueue.worker.address import QueueAddress
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.interrupts import Interrupts
from headgate.jobqueue.worker.sync_job import SyncHeldJob
from headgate.jobqueue.worker.worker import TERMINATED, Worker

T = TypeVar("T")

_STOP_S: Final = 30.0


class SyncWorker:
    """`Worker` as a context manager of programs that know no asyncio; the same rules hold.

    Heartbeats go on while the program blocks. In the main thread a lost lease raises `LeaseLost` at once (by SIGUSR1),
    and SIGTERM gives the job back and ends the program with status 143.

    Args:
        address: a URL, which may carry a token, or an address; the environment's without it.
        options: those of `Worker`.
    """

    def __init__(self, address: str | QueueAddress | None = None, **options: Any) -> None:
        self._address = address
        self._options = options
        self._started: Future[tuple[asyncio.AbstractEventLoop, Worker, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._serve, name="headgate-worker", daemon=True)
        self._interrupts = Interrupts(TERMINATED)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        self._interrupts.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, worker, stop = self._started.result()
        try:
            for job in list(worker.held.values()):
                self.run(job.end(error))
        finally:
            loop.call_soon_threadsafe(stop.set)
            self._thread.join(_STOP_S)
            self._interrupts.remove()

    @property
    def name(self) -> str:
        """The name under which it claims jobs."""
        return self._started.result()[1].name

    def jobs(
        self, *, stop_when_empty: bool = False, idle_s: float | None = None, max_jobs: int | None = None
    ) -> Iterator[SyncHeldJob]:
        """Yield one job after the other; work on each inside `with job:`. Arguments as of `Worker.jobs`."""
        worker = self._started.result()[1]
        taken = 0
        while max_jobs is None or taken < max_jobs:
            job = self.run(worker.claim(0.0 if stop_when_empty else idle_s))
            if job is None:
                return
            taken += 1
            yield SyncHeldJob(job, self, self._interrupts.watch)
            self.run(worker.put_away(job))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns on the worker's loop; whoever is interrupted meanwhile cancels it."""
        loop = self._started.result()[0]
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, act: Callable[[], object]) -> None:
        """Let something be done on the worker's loop, soon."""
        self._started.result()[0].call_soon_threadsafe(act)

    def _serve(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _live(self) -> None:
        stop = asyncio.Event()
        async with JobQueueClient(self._address) as client, Worker(client, **self._options) as worker:
            self._started.set_result((asyncio.get_running_loop(), worker, stop))
            await stop.wait()
