"""The executor of outside workers: samples go to a job queue, and come back when somebody has taken them."""

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
"""Of one request; what fails is asked for again at the next look, for as long as the run lasts."""

LEAD: Final = 2
"""Jobs that wait in the queue at least, beyond one for each worker that stands in line: a worker that ends its job
finds the next one, and one that polls now and then finds one at all."""

_PER_LEAD: Final = 4
"""Jobs in progress for each further one that waits: at most a quarter of the work is ahead of the workers."""

_NOBODY_S: Final = 60.0
"""A job that no worker has claimed for so long is taken back: it holds one of its model's parallel slots, and a place
that a job which somebody would take could have. Its sample is handed out again after as long."""

_LEAST_POLL_S: Final = 0.1
_POLL_S: Final = 2.0
"""Between two looks at the queue: soon while jobs begin and end, and at most so long."""

_GATHER_S: Final = 0.02
"""Samples that are handed over within this are one request."""

_OURS: Final = "taken back by the run: "
"""What the reason of a withdrawal begins with after which the sample may be handed out again."""

_ENDED: Final = frozenset({Happening.COMPLETED, Happening.DIED, Happening.WITHDRAWN})
_FREED: Final = frozenset({Happening.GIVEN_BACK, Happening.EXPIRED, Happening.FAILED, Happening.REQUEUED})


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A sample that was handed over, and has no job now.

    Attributes:
        wait_s: seconds after which it may be handed over again; None when it is not wanted any more.
    """

    reason: str
    wait_s: float | None = None


class Executor(ABC):
    """Who takes samples that are not played in this process. Used by one run.

    Attributes:
        problem: why it takes none now; empty when it does.
        limit: how many samples it may have now.
    """

    problem: str = ""
    limit: int = LEAD

    @property
    @abstractmethod
    def played(self) -> Set[str]:
        """The environments that are its."""

    @abstractmethod
    async def sample(self, row: Row) -> Sample | TakenBack:
        """Return the sample of a row, once it is taken."""

    async def run(self, limit_changed: Callable[[int], None]) -> None:  # noqa: B027 - there may be nothing to do
        """Do what it does beside, until cancelled; tell whenever `limit` is another one."""

    def withdraw(  # noqa: B027 - as above
        self, reason: str, condition: Callable[[Task], bool], *, wait_s: float | None = None
    ) -> None:
        """Take back what has not begun; `wait_s` as of `TakenBack`."""

    def place_of(self, task_id: str) -> str:  # noqa: ARG002 - for those who know
        """Return where a sample is, in a sentence; empty for one that is not with it."""
        return ""

    def status(self) -> OutsideStatus | None:
        """Return how many samples are with it, where that is more than a moment."""
        return None


@dataclass(slots=True, eq=False)
class _Handed:
    """A sample that is with the queue, or on its way there."""

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
    """Hands samples to a job queue, follows their jobs, and says how many more its workers can take. For one run.

    A job has the id of its task, so that handing a sample over again, by any process, finds
    the job that there is: pending, with a worker, or done. `run` is the one who asks the queue. While that does not
    answer, samples that are with it wait, and no further one is handed over.

    Attributes:
        client: of the queue; used by this alone.
        executors: of the environments that are handed to outside workers.
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
        """The environments that are handed to outside workers."""
        return self.executors.keys()

    async def sample(self, row: Row) -> Sample | TakenBack:
        """Return the sample of a row when its job has ended, or that the job was taken back.

        Who is cancelled leaves the job where it is: handing the row over again finds it.
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
        """Have jobs withdrawn that no worker has claimed yet."""
        for handed in self._handed.values():
            if not handed.worker and condition(handed.task):
                handed.unwanted = TakenBack(reason, wait_s)
                self._wake.set()

    def place_of(self, task_id: str) -> str:
        """Return where the job of a sample is, in a sentence; empty for one that is not handed over."""
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
        """Return how many samples are with the queue, and how many may be."""
        working = sum(bool(handed.worker) for handed in self._handed.values())
        return OutsideStatus(len(self._handed), working, self.limit, self._waiting_claims, self.problem)

    async def run(self, limit_changed: Callable[[int], None]) -> None:
        """Follow the queue until cancelled; whenever `limit` is another one, tell so."""
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
        """Bring queue and run in step; return whether anything has happened to jobs."""
        await self._submit()
        unwanted = [handed for handed in self._handed.values() if handed.unwanted is not None and not handed.worker]
        await asyncio.gather(*map(self._take_back, unwanted))
        has_moved = await self._follow()
        now = self.clock.monotonic()
        overdue = now - _NOBODY_S
        for handed in [one for one in self._handed.values() if one.worker and one.since < overdue]:
            handed.since = now
            await self._look_at(handed)  # a queue that was made anew tells nothing of the jobs that it lost
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
        """Have the queue know every sample that is handed over; one that it knew already may have ended."""
        fresh = [handed for handed in self._handed.values() if not handed.is_there]
        if not fresh:
            return
        try:
            was_known = (await self.client.submit([handed.spec for handed in fresh])).existing > 0
        except JobConflictError:
            was_known = True  # by what the roster said when they were handed over first, which stays
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
        """Read what has happened in the queue since the last look; return whether any of it was about our jobs."""
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
        """Follow the job as it is, whatever its history said."""
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
        """Wait for the queue: what it has may have changed, and what it has not is given back to its model's slots."""
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
