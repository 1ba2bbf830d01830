"""Gives the completed jobs of a queue to a run, as the source of its samples, its roster, and its executor."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from headgate.core import Model, Sample
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.core.events import Event
from headgate.environments import Environment, OutsideEnvironment
from headgate.jobqueue import Happening, JobState
from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.wire_servers import StatisticsOut
from headgate.run.job_samples import (
    JobSampleRules,
    ended_at,
    model_of_team,
    sample_of_job,
    stored_name,
    task_id_of_job,
    with_result_of_file,
)
from headgate.run.outside_workers import Executor
from headgate.run.rows import Row
from headgate.sampling import Demand, Roster
from headgate.statistics import MeanEstimate, mean_of_sums
from headgate.storage import SampleStore

if TYPE_CHECKING:
    from headgate.jobqueue.generator import ResultFolder
    from headgate.jobqueue.worker import JobQueueClient

PAGE: Final = 1_000

_AT_ONCE: Final = 1_000
"""Samples given to a run at a time."""

_SAME_TIME_S: Final = 1e-3
_COLUMNS: Final = ("task_id", "campaign", "stage", "model", "environment", "score", "finished_at")

_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ScoreTally:
    """The scores of one team's task so far.

    Attributes:
        is_binary: whether every score is 0 or 1.
    """

    scored: int = 0
    unscored: int = 0
    total: float = 0.0
    squares: float = 0.0
    is_binary: bool = True

    def with_score(self, score: float | None) -> ScoreTally:
        """Return the tally with one more sample."""
        if score is None:
            return replace(self, unscored=self.unscored + 1)
        return ScoreTally(
            self.scored + 1,
            self.unscored,
            self.total + score,
            self.squares + score * score,
            self.is_binary and score in {0.0, 1.0},
        )

    @property
    def estimate(self) -> MeanEstimate | None:
        """The mean with its 95 % interval; None before the first score."""
        if not self.scored:
            return None
        return mean_of_sums(self.scored, self.total, self.squares, is_binary=self.is_binary)


class JobCollector(Executor):
    """Gives the completed jobs of a queue to a run, each once. Owned by that run.

    It is the run's roster (teams are the models), its source (completed jobs are due), and its executor (it already has
    the samples). Reading the roster is one look at the queue. The store tells what was collected before: after a run
    that was killed at any point, the next one, on any machine, stores what is missing and nothing twice. Two concurrent
    runs may both store a job; readers and summaries count it once.

    Attributes:
        statistics: the queue's figures at the last look; None before the first.
        known: number of completed jobs that were in the store before.
        fresh: number of those that were not.
        ended_by: why no further job is given, in a few words; empty while more may come.
        failure: the error that ended it, or None.
    """

    def __init__(
        self, source: JobQueueClient, store: SampleStore, rules: JobSampleRules, *, results: ResultFolder | None = None
    ) -> None:
        """Prepare it; `results` are result files, for jobs that were completed without a result."""
        self._source = source
        self._store = store
        self.rules = rules
        self._results = results
        self._after = 0
        self._history_after = 0
        self._servers: dict[str, str] = {}
        self._ended: dict[str, dict[str, float]] = {}
        self.scores: dict[_Pair, ScoreTally] = {}
        """Scores by model and environment, of stored samples and those waiting to be stored."""
        self._teams: dict[str, Model] = {}
        self._roster: frozenset[str] = frozenset()
        self._waiting: list[Sample] = []
        self._given: dict[str, Sample] = {}
        self.environments: dict[str, Environment] = {}
        self.limit = _AT_ONCE
        self.statistics: StatisticsOut | None = None
        self.known = 0
        self.fresh = 0
        self.ended_by = ""
        self.failure: HeadgateError | None = None

    def end(self, why: str) -> None:
        """Give the fetched samples, and then no further job. May be called more than once."""
        self.ended_by = self.ended_by or why

    async def look(self) -> bool:
        """Fetch the jobs completed since the last look; return True, unlike the None of a cancelled call.

        It can be cancelled and called again: each page is processed as a whole or not at all.

        Raises:
            InvalidInputError: if the store's sample of a job is from another evaluation, that is, another queue.
            StoreError: if the store cannot be read.
            JobQueueError: if the queue refuses or does not answer.
        """
        # In this order, so that all jobs that these figures count as done are among the results.
        statistics = await self._source.statistics()
        while True:
            page = await self._source.results(self._after, PAGE)
            await self._learn({stored_name(finished.job.task) for finished in page.results})
            fresh = [finished.job for finished in page.results if not self._is_known(finished.job)]
            if fresh:
                await self._follow_reservations()
            self._take(fresh)
            self.known += len(page.results) - len(fresh)
            if page.next <= self._after:
                break
            self._after = page.next
        self.statistics = statistics
        for lane in statistics.lanes:
            self._meet(model_of_team(lane.team), stored_name(lane.task))
        if not sum(statistics.jobs.get(state, 0) for state in (JobState.PENDING, JobState.IN_PROGRESS)):
            self.end("no job is left")
        return True

    # The roster.

    async def load(self) -> Roster:
        """Look at the queue and return its teams; the first look was made before the run."""
        if self._roster and not self.ended_by:
            try:
                await self.look()
            except HeadgateError as error:
                self.failure = error
                self.end("the queue or the store cannot be read")
        return Roster(tuple(self._teams.values()))

    # The source.

    def next_at(self, now: float) -> float | None:
        """Return `now` while there is something to give; None when nothing more will come."""
        if self._waiting:
            return now
        return None if self.ended_by else now + 1.0

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next completed jobs whose teams are in the roster by now."""
        ready = [sample for sample in self._waiting if sample.model in self._roster][:_AT_ONCE]
        taken = {sample.task_id for sample in ready}
        self._waiting = [sample for sample in self._waiting if sample.task_id not in taken]
        self._given.update((sample.task_id, sample) for sample in ready)
        return [Demand(one.model, one.environment, now, 0.0, one.sequence, one.stage) for one in ready], ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Give only the jobs of these teams from now on."""
        self._roster = frozenset(model.key for model in models)

    # The executor.

    @property
    def played(self) -> Set[str]:
        """All tasks of the queue."""
        return self.environments.keys()

    async def sample(self, row: Row) -> Sample:
        """Return the sample of a given job."""
        return self._given.pop(row.task.task_id)

    # Inside.

    def _is_known(self, job: JobOut) -> bool:
        ended = self._ended[stored_name(job.task)].get(task_id_of_job(job, self.rules))
        if ended is None:
            return False
        if abs(ended - ended_at(job)) > _SAME_TIME_S:
            raise InvalidInputError(
                f"the store has another evaluation of job {job.id!r} of queue {self.rules.queue!r}: it ended at "
                f"{ended:.3f} and not at {ended_at(job):.3f}",
                next_step="Give this queue a name of its own, or its samples another campaign.",
            )
        return True

    def _take(self, jobs: Sequence[JobOut]) -> None:
        for job in jobs:
            told = job if self._results is None else with_result_of_file(job, self._results)
            sample = sample_of_job(told, self.rules, self._servers.pop(job.id, ""))
            self._ended[sample.environment][sample.task_id] = sample.finished_at
            self._count(sample.model, sample.environment, sample.score)
            self._waiting.append(sample)
            self._meet(sample.model, sample.environment)
        self.fresh += len(jobs)

    def _meet(self, team: str, task: str) -> None:
        self._teams.setdefault(team, Model(team.rpartition("@")[0], uid=len(self._teams), max_parallel=_AT_ONCE))
        self.environments.setdefault(task, OutsideEnvironment(task))

    async def _learn(self, environments: set[str]) -> None:
        """Load the store's samples of environments that were not loaded before."""
        unread = sorted(environments - self._ended.keys())
        if not unread:
            return
        rows = (await self._store.scan(unread, columns=_COLUMNS, everything=True)).frame
        ours = (pl.col("campaign") == self.rules.campaign) & (pl.col("stage") == self.rules.stage)
        self._ended |= {environment: {} for environment in unread}
        for row in rows.filter(ours).select(*_COLUMNS, "invalid").iter_rows():
            task_id, _, _, model, environment, score, finished_at, is_invalid = row
            self._ended[environment][task_id] = finished_at
            if not is_invalid:
                self._count(model, environment, score)

    async def _follow_reservations(self) -> None:
        """Read which server each job reserved; the history has that before the job's completion."""
        while True:
            page = await self._source.history(self._history_after, PAGE, Happening.RESERVED)
            self._servers.update({entry.job_id: entry.resource_id for entry in page.entries})
            if page.next <= self._history_after:
                return
            self._history_after = page.next

    def _count(self, model: str, environment: str, score: float | None) -> None:
        pair = (model, environment)
        self.scores[pair] = self.scores.get(pair, ScoreTally()).with_score(score)
