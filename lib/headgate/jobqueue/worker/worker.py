"""The worker: claims jobs, keeps their leases, and runs the given work on them."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import signal
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from headgate.core import Clock, SystemClock
from headgate.core.errors import InvalidInputError
from headgate.core.flaws import flaws_raised
from headgate.jobqueue.errors import MachineUnfitError
from headgate.jobqueue.names import user_name
from headgate.jobqueue.wire import DEFAULT_LEASE_S, ClaimIn, JobLeaseIn
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.heartbeat import Heartbeat
from headgate.jobqueue.worker.held_job import FOR_EVER, HeldJob, long_polls

_log = logging.getLogger("headgate.jobqueue.worker")

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status of a process that SIGTERM ends, as shells see it."""

UNFIT_S: Final = 30.0
"""Wait of a worker whose machine cannot do any job, before it tries again: somebody may have freed space by then."""

Work = Callable[[HeldJob], Awaitable[None]]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PART_CHARS: Final = 50


class Worker:
    """Claims jobs and holds them while they are worked on; an async context manager, used by one task.

    One heartbeat renews every lease that it holds, every third of `lease_s`. When the server is unreachable, work
    continues until five seconds before the server may reassign the job. SIGTERM, in the main thread and unless another
    handler is installed, gives every job back and ends the process with status 143.

    Args:
        client: the queue's client; it must outlive the worker.
        name: name shown by the queue, unique among workers.
        lease_s: seconds after which a dead worker loses its jobs; 10 to 3600.
        count: number of jobs that `run` works on at a time.
        teams: claim only jobs of these teams; None for all.
        tasks: claim only jobs of these tasks; None for all.
        pools: claim only jobs of these pools; None for all.
        stall_after_s: seconds without `progress()` after which a job is failed; None for no such limit.
        stop_s: seconds that stopping the work may take: a lease that cannot be renewed is given up earlier by this
            much.
        clock: source of time.

    Raises:
        InvalidInputError: if a name or number is not valid for a worker.
    """

    def __init__(
        self,
        client: JobQueueClient,
        *,
        name: str | None = None,
        lease_s: float = DEFAULT_LEASE_S,
        count: int = 1,
        teams: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        stall_after_s: float | None = None,
        stop_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        if count < 1:
            raise InvalidInputError(f"count must be >= 1 (got {count})")
        self.name = name or worker_name()
        self.held: dict[str, HeldJob] = {}
        self._client = client
        self._count = count
        self._stall_after_s = stall_after_s
        self._stop_s = stop_s
        self._clock = clock or SystemClock()
        with flaws_raised(ClaimIn, InvalidInputError):
            self._wish = ClaimIn(
                worker=self.name,
                lease_s=float(lease_s),
                teams=None if teams is None else list(teams),
                tasks=None if tasks is None else list(tasks),
                pools=None if pools is None else list(pools),
            )
        self._heartbeat = Heartbeat(client, self._clock, self.held)
        self._group = asyncio.TaskGroup()
        self._beats: list[asyncio.Task[None]] = []
        self._is_terminated = False
        self._unfit: MachineUnfitError | None = None
        self._unfit_since = self._rests_until = 0.0
        self._unhandle: Callable[[], object] = lambda: None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._beats = [
            self._group.create_task(self._heartbeat.renew_for_ever(), name="renewals"),
            self._group.create_task(self._heartbeat.watch_for_ever(), name="deadlines"),
        ]
        self._handle_termination()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                await asyncio.gather(*(job.end(error) for job in self.held.values()))
            finally:
                self._unhandle()
                for beat in self._beats:
                    beat.cancel()
                # Every error but a cancellation propagates unchanged; the group would wrap it.
                is_cancelled = isinstance(error, asyncio.CancelledError)
                await self._group.__aexit__(*((kind, error, trace) if is_cancelled else (None, None, None)))
        except asyncio.CancelledError:
            if self._is_terminated:
                raise SystemExit(TERMINATED) from None
            raise

    def jobs(
        self, *, stop_when_empty: bool = False, idle_s: float | None = None, max_jobs: int | None = None
    ) -> AsyncIterator[HeldJob]:
        """Return an iterator over claimed jobs; work on each inside `async with job:`.

        Args:
            stop_when_empty: end as soon as there is no job to claim.
            idle_s: end after this many seconds without a job; None waits forever.
            max_jobs: end after this many jobs.
        """
        return self._jobs(0.0 if stop_when_empty else idle_s, Quota(max_jobs))

    async def run(
        self, work: Work, *, stop_when_empty: bool = False, idle_s: float | None = None, max_jobs: int | None = None
    ) -> None:
        """Await `work` with each job, inside its context, `count` at a time; an error that it raises ends only its job.

        The other arguments are those of `jobs`, for all lanes together. When `work` raises `MachineUnfitError`, no job
        is claimed for `UNFIT_S`, which counts as idle time; then the worker tries again. Such a job is not one of the
        `max_jobs`.

        Raises:
            MachineUnfitError: if the machine is unfit when the idle limit is reached.
        """
        quota = Quota(max_jobs)
        longest_idle_s = 0.0 if stop_when_empty else idle_s

        async def lane() -> None:
            async for job in self._jobs(longest_idle_s, quota):
                known = self._unfit
                try:
                    async with job:
                        await work(job)
                        if self._unfit is known:  # a job claimed before the machine was found unfit proves nothing
                            self._unfit = None
                except MachineUnfitError as error:
                    quota.left += 1
                    self._rest(error)

        async with asyncio.TaskGroup() as lanes:
            for number in range(self._count):
                lanes.create_task(lane(), name=f"lane {number}")
        if self._unfit is not None:
            raise self._unfit

    async def claim(self, idle_s: float | None = None) -> HeldJob | None:
        """Return the next job, or None when there was none for `idle_s` seconds."""
        for wait_s in long_polls(idle_s, self._clock):
            if (job := await self._claim(wait_s)) is not None:
                return job
        return None

    async def put_away(self, job: HeldJob) -> None:
        """Finish with a job; it has failed if the server was not told how it ended."""
        await job.end(None)
        del self.held[job.lease.ref.lease_id]

    # Inside.

    async def _jobs(self, idle_s: float | None, quota: Iterator[None]) -> AsyncIterator[HeldJob]:
        for _ in quota:
            job = await self.claim(idle_s) if await self._has_rested(idle_s) else None
            if job is None:
                return
            yield job
            await self.put_away(job)

    def _rest(self, error: MachineUnfitError) -> None:
        """Pause claiming for `UNFIT_S`, and log why the first time."""
        now = self._clock.monotonic()
        if self._unfit is None:
            self._unfit_since = now
            told = "No job can be done on this machine; claiming is tried again every %g s: %s. %s"
            _log.warning(told, UNFIT_S, error.message, error.next_step)
        self._unfit, self._rests_until = error, now + UNFIT_S

    async def _has_rested(self, idle_s: float | None) -> bool:
        """Return True once a job may be claimed; False if the machine stayed unfit for the whole `idle_s`."""
        while self._unfit is not None and (rest_s := self._rests_until - self._clock.monotonic()) > 0:
            left_s = math.inf if idle_s is None else self._unfit_since + idle_s - self._clock.monotonic()
            if left_s <= 0:
                return False
            await self._clock.sleep(min(rest_s, left_s))
        return True

    async def _claim(self, wait_s: float) -> HeldJob | None:
        """Claim one job in a separate task: if this is cancelled, a job that was still granted is given back."""
        asking = asyncio.create_task(self._ask(wait_s), name="claim")
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError as error:
            asking.cancel()
            await asyncio.wait([asking])
            job = None if asking.cancelled() or asking.exception() is not None else asking.result()
            if job is not None:
                await job.end(error)
            raise

    async def _ask(self, wait_s: float) -> HeldJob | None:
        asked_at = self._clock.monotonic()
        answer = await self._client.claim(self._wish.model_copy(update={"wait_s": wait_s}), FOR_EVER)
        now = self._clock.monotonic()
        for claimed in answer.jobs:
            lease = self._heartbeat.leases.add(
                JobLeaseIn(job_id=claimed.job.id, lease_id=claimed.lease.lease_id, epoch=claimed.lease.epoch),
                claimed.lease.lease_s,
                asked_at=asked_at,
                now=now,
                stall_after_s=self._stall_after_s,
                stop_s=self._stop_s,
            )
            job = HeldJob(claimed.job, lease, self._heartbeat, self._client, self._clock)
            self.held[claimed.lease.lease_id] = job
            self._heartbeat.wake()
            _log.info("Job %s claimed (attempt %d, epoch %d)", job.id, job.attempt, job.epoch)
            return job
        return None

    def _handle_termination(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            if not self._is_terminated:
                _log.info("SIGTERM: giving back the jobs in hand: %d", len(self.held))
                self._is_terminated = True
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        self._unhandle = lambda: loop.remove_signal_handler(signal.SIGTERM)


class Quota(Iterator[None]):
    """Ends after `max_jobs` jobs, shared by all lanes of a worker; None for no limit."""

    def __init__(self, max_jobs: int | None) -> None:
        self.left = math.inf if max_jobs is None else max_jobs

    def __next__(self) -> None:
        if self.left <= 0:
            raise StopIteration
        self.left -= 1


def worker_name(environ: Mapping[str, str] | None = None) -> str:
    """Return `user-job-array task-uuid`; the job is SLURM's, or this host's name outside of SLURM."""
    environ = os.environ if environ is None else environ
    user = user_name(environ) or "worker"
    place = environ.get("SLURM_JOB_ID") or socket.gethostname()
    parts = [user, place, environ.get("SLURM_ARRAY_TASK_ID", "")]
    clean = (_CONTROL.sub("", part)[:_PART_CHARS] for part in parts)
    return "-".join([*(part for part in clean if part), uuid.uuid4().hex])
