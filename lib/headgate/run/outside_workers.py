"""The executor for outside workers: hands samples to a job queue and collects them when workers have taken them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.config import Settings
from headgate.core import Clock, Sample, Task, until_set
from headgate.core.errors import HeadgateError
from headgate.core.events import Emit, JobQueueAnswered, JobQueueFailed
from headgate.core.status import OutsideStatus
from headgate.jobqueue import Happening, JobSpec, JobState
from headgate.jobqueue.errors import JobConflictError, UnknownJobError, WrongStateError
from headgate.jobqueue.wire import EntryOut, JobOut, RequeueIn
from headgate.jobqueue.worker import RetryPolicy
from headgate.run.outside_job import job_of, sample_of_order
from headgate.run.rows import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.jobqueue.worker import JobQueueClient

PATIENCE: Final = RetryPolicy(patience_s=1.0)
"""Patience of one request; a failed one is repeated at the next look, for as long as the run lasts."""

LEAD: Final = 2
"""Minimum of jobs waiting in the queue, beyond one for each worker in line: a worker that ends its job finds the next
one, and a worker that polls now and then finds one at all."""

_PER_LEAD: Final = 4
"""Jobs in progress per further waiting job: at most a quarter of the work is queued ahead of the workers."""

_NOBODY_S: Final = 60.0
"""A job that no worker has claimed for this long is taken back: it holds one of its model's parallel slots, and the
place of a job that a worker might claim. Its sample is handed out again after the same time."""

_LEAST_POLL_S: Final = 0.1
_POLL_S: Final = 2.0
"""Limits of the time between two looks at the queue: short while jobs start and end."""

_GATHER_S: Final = 0.02
"""Samples handed over within this time go into one request."""

_OURS: Final = "taken back by the run: "
"""Start of the reason of a withdrawal after which the sample may be handed out again."""

_ENDED: Final = frozenset({Happening.COMPLETED, Happening.DIED, Happening.WITHDRAWN})
_FREED: Final = frozenset({Happening.GIVEN_BACK, Happening.EXPIRED, Happening.FAILED, Happening.REQUEUED})


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A sample that was handed over and has no job now.

    Attributes:
        wait_s: seconds after which it may be handed over again; None if it is no longer wanted.
    """

    reason: str
    wait_s: float | None = None


class Executor(ABC):
    """Takes samples that are not played in this process. Used by one run.

    Attributes:
        problem: why it takes no samples now; empty when it does.
        limit: number of samples that it may hold now.
    """

    problem: str = ""
    limit: int = LEAD

    @property
    @abstractmethod
    def played(self) -> Set[str]:
        """The environments whose samples it takes."""

    @abstractmethod
    async def sample(self, row: Row) -> Sample | TakenBack:
        """Return the sample of a row, once it is taken."""

    async def run(self, limit_changed: Callable[[int], None]) -> None:  # noqa: B027 - there may be nothing to do
        """Run its background work until cancelled; call `limit_changed` whenever `limit` changes."""

    def withdraw(  # noqa: B027 - as above
        self, reason: str, condition: Callable[[Task], bool], *, wait_s: float | None = None
    ) -> None:
        """Take back samples that have not started; `wait_s` is that of `TakenBack`."""

    def place_of(self, task_id: str) -> str:  # noqa: ARG002 - for subclasses
        """Return where a sample is, in a sentence; empty for one that it does not hold."""
        return ""

    def status(self) -> OutsideStatus | None:
        """Return how many samples it holds; None if it never holds them for more than a moment."""
        return None


@dataclass(slots=True, eq=False)
class _Handed:
    """A sample in the queue, or on its way there."""

    task: Task
    spec: JobSpec
    since: float
    ended: asyncio.Future[JobOut | TakenBack]
    is_there: bool = False
    was_there: bool = False
    worker: str = ""
    server: str = ""
    unwanted: TakenBack | None = None

    def end(self, how: JobOut | TakenBack) -> None:
        if not self.ended.done():
            self.ended.set_result(how)


@dataclass
class OutsideWorkers(Executor):
    """Hands samples to a job queue, follows their jobs, and tells how many more its workers can take. For one run.

    A job has the id of its task, so that handing a sample over again, from any process, finds the existing job:
    pending, in progress, or done. Only `run` talks to the queue. While the queue does not answer, samples in it wait,
    and no further one is handed over.

    Attributes:
        client: the queue's client; used by this object alone.
        executors: executor by environment, for the environments that outside workers play.
    """

    client: JobQueueClient
    settings: Settings
    executors: Mapping[str, str]
    clock: Clock
    emit: Emit
    _handed: dict[str, _Handed] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _after: int | None = None
    _waiting_claims: int = 0

    @property
    def played(self) -> Set[str]:
        """The environments that outside workers play."""
        return self.executors.keys()

    async def sample(self, row: Row) -> Sample | TakenBack:
        """Return the sample of a row when its job has ended, or that the job was taken back.

        If this is cancelled, the job stays where it is: handing the row over again finds it.
        """
        task, settings = row.task, self.settings
        spec = job_of(task, row.model, self.executors[task.environment], sends_key=settings.jobqueue_sends_keys)
        handed = _Handed(task, spec, self.clock.monotonic(), asyncio.get_running_loop().create_future())
        self._handed[task.task_id] = handed
        self._wake.set()
        try:
            ended = await handed.ended
        finally:
            del self._handed[task.task_id]
        if isinstance(ended, TakenBack):
            return ended
        now, keeps = self.clock.wall(), settings.keep_conversations
        return sample_of_order(row, ended, handed.server, now=now, keep_conversation=keeps)

    def withdraw(self, reason: str, condition: Callable[[Task], bool], *, wait_s: float | None = None) -> None:
        """Withdraw jobs that no worker has claimed yet."""
        for handed in self._handed.values():
            if not handed.worker and condition(handed.task):
                handed.unwanted = TakenBack(reason, wait_s)
                self._wake.set()

    def place_of(self, task_id: str) -> str:
        """Return where the job of a sample is, in a sentence; empty for a sample that is not handed over."""
        handed = self._handed.get(task_id)
        if handed is None:
            return ""
        if self.problem:
            return f"its job waits for the job queue: {self.problem}"
        if handed.worker:
            return f"outside worker {handed.worker} has its job" + (f", on {handed.server}" if handed.server else "")
        waiting = sum(not other.worker for other in self._handed.values())
        return f"its job waits for an outside worker: {waiting} jobs wait, {self._waiting_claims} workers stand in line"

    def status(self) -> OutsideStatus:
        """Return how many samples the queue has, and how many it may have."""
        working = sum(bool(handed.worker) for handed in self._handed.values())
        return OutsideStatus(len(self._handed), working, self.limit, self._waiting_claims, self.problem)

    async def run(self, limit_changed: Callable[[int], None]) -> None:
        """Follow the queue until cancelled; call `limit_changed` whenever `limit` changes."""
        poll_s = _LEAST_POLL_S
        while True:
            self._wake.clear()
            limit = self.limit
            try:
                has_moved = await self._look()
            except HeadgateError as error:
                has_moved = False
                self._failed(error)
            if limit != self.limit:
                limit_changed(self.limit)
            poll_s = _LEAST_POLL_S if has_moved else min(2 * poll_s, _POLL_S)
            await until_set(self._wake, poll_s)
            await self.clock.sleep(_GATHER_S)

    # One look.

    async def _look(self) -> bool:
        """Bring queue and run in step; return whether any job has changed."""
        await self._submit()
        unwanted = [handed for handed in self._handed.values() if handed.unwanted is not None and not handed.worker]
        await asyncio.gather(*map(self._take_back, unwanted))
        has_moved = await self._follow()
        now = self.clock.monotonic()
        overdue = now - _NOBODY_S
        for handed in [one for one in self._handed.values() if one.worker and one.since < overdue]:
            handed.since = now
            await self._look_at(handed)  # a queue that was recreated reports nothing about the jobs that it lost
        self.withdraw(
            f"no worker has claimed it for {_NOBODY_S:g} s",
            lambda task: self._handed[task.task_id].is_there and self._handed[task.task_id].since < overdue,
            wait_s=_NOBODY_S,
        )
        self._waiting_claims = (await self.client.statistics()).waiting_claims
        if self.problem:
            self.problem = ""
            self.emit(JobQueueAnswered(self.settings.campaign, len(self._handed)))
        working = sum(bool(handed.worker) for handed in self._handed.values())
        self.limit = working + self._waiting_claims + max(LEAD, working // _PER_LEAD)
        return has_moved

    async def _submit(self) -> None:
        """Submit every sample that is handed over; a job that the queue already had may have ended."""
        fresh = [handed for handed in self._handed.values() if not handed.is_there]
        if not fresh:
            return
        try:
            was_known = (await self.client.submit([handed.spec for handed in fresh])).existing > 0
        except JobConflictError:
            was_known = True  # with the roster entry of the first submission, which stays in force
            for handed in fresh:
                with suppress(JobConflictError):
                    await self.client.submit([handed.spec])
        if self._after is None:
            entries = (await self.client.job_history(fresh[0].spec.job_id)).entries
            self._after = entries[-1 if was_known else 0].entry
        for handed in fresh:
            handed.is_there = handed.was_there = True
            if was_known:
                await self._look_at(handed)

    async def _take_back(self, handed: _Handed) -> None:
        assert handed.unwanted is not None
        if handed.is_there:
            try:
                await self.client.withdraw(handed.spec.job_id, f"{_OURS}{handed.unwanted.reason}")
            except WrongStateError:
                handed.unwanted = None  # it has ended meanwhile
                return
        handed.end(handed.unwanted)

    async def _follow(self) -> bool:
        """Read the queue's history since the last look; return whether any of it was about our jobs."""
        ended: dict[str, _Handed] = {}
        has_moved = False
        while self._after is not None:
            page = await self.client.history(self._after)
            for entry in page.entries:
                if (handed := self._handed.get(entry.job_id)) is not None:
                    has_moved = True
                    _note(handed, entry, self.clock.monotonic())
                    if entry.what in _ENDED:
                        ended[entry.job_id] = handed
            if page.next <= self._after:
                break
            self._after = page.next
        await asyncio.gather(*map(self._look_at, ended.values()))
        return has_moved

    async def _look_at(self, handed: _Handed) -> None:
        """Read the job's present state, whatever its history said."""
        try:
            job = await self.client.job(handed.spec.job_id)
        except UnknownJobError:
            handed.is_there, handed.worker, self._after = False, "", None  # the queue has lost it
            return
        if job.state is JobState.DEAD and job.last_error.startswith(f"withdrawn: {_OURS}"):
            if handed.unwanted is None:
                await self.client.requeue(RequeueIn(job_ids=[job.id]))
        elif job.state in (JobState.DONE, JobState.DEAD):
            handed.end(job)
        else:
            handed.worker = job.worker if job.state is JobState.IN_PROGRESS else ""

    def _failed(self, error: HeadgateError) -> None:
        """Wait for the queue to answer; samples that it never received go back and free their model's slots."""
        if not self.problem:
            self.emit(JobQueueFailed(self.settings.campaign, error.message, len(self._handed)))
        self.problem = error.message
        self._after = None
        for handed in self._handed.values():
            handed.is_there = False
            if not handed.was_there:
                handed.end(TakenBack(error.message, _POLL_S))
        self.limit = 0


def _note(handed: _Handed, entry: EntryOut, now: float) -> None:
    handed.since = now
    match entry.what:
        case Happening.CLAIMED:
            handed.worker = entry.worker
        case Happening.RESERVED:
            handed.server = entry.resource_id
        case what if what in _FREED:
            handed.worker = handed.server = ""
        case _:
            pass
