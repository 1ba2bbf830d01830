"""Driving a queue to its end: completed jobs become samples, each once."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headgate.core import SystemClock, errors
from headgate.jobqueue import JobState
from headgate.jobqueue.generator import ResultFolder
from headgate.jobqueue.wire import ResultsOut
from headgate.jobqueue.wire_servers import LaneOut, StatisticsOut
from headgate.run import run
from headgate.run.job_collector import JobCollector, ScoreTally
from headgate.run.job_samples import JobSampleRules, sample_of_job
from headgate.run.queue_drain import DrainResult, DrainRules, QueueProgress, drain_queue
from headgate.storage import SampleStore, open_store
from tests.run.jobs.values import BEGAN, FailingStore, Queue, job


def lane(team: str = "team_a", task: str = "radio", pool: str = "p", **more: Any) -> LaneOut:
    counts: dict[str, Any] = {"pending": 0, "in_progress": 0, "done": 0, "dead": 0, "is_served": True}
    return LaneOut(team=team, task=task, pool=pool, **(counts | more))


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    return open_store(str(tmp_path / "samples"))


async def _drain(
    queue: Queue,
    store: Any,
    *,
    stop: asyncio.Event | None = None,
    told: list[QueueProgress] | None = None,
    sample_rules: JobSampleRules | None = None,
    results: ResultFolder | None = None,
    **rules: Any,
) -> DrainResult:
    async def on_progress(progress: QueueProgress) -> None:
        if told is not None:
            told.append(progress)

    collector = JobCollector(queue, store, sample_rules or JobSampleRules(), results=results)  # type: ignore[arg-type]
    rules = {"poll_s": 0.02, "store_every_s": 0.3} | rules
    clock, stop = SystemClock(), stop or asyncio.Event()
    return await drain_queue(
        collector, DrainRules(**rules), store=store, clock=clock, stop=stop, on_progress=on_progress
    )


def _work_off(queue: Queue, jobs: int) -> None:
    """Have one of so many pending jobs completed each time that the queue is looked at."""
    queue.states[JobState.PENDING] = jobs
    queue.lanes = [lane(pending=jobs)]
    numbers = iter(range(jobs))

    def complete_one() -> None:
        number = next(numbers, None)
        if number is not None:
            queue.states[JobState.PENDING] -= 1
            queue.complete(job(f"j{number}"))

    queue.then = complete_one


async def test_a_drain_ends_when_no_job_is_left_and_has_stored_all_results(store: SampleStore) -> None:
    queue, told = Queue(), list[QueueProgress]()
    _work_off(queue, 3)
    result = await _drain(queue, store, told=told)
    assert (result.stored, result.is_drained, result.stopped_by) == (3, True, "no job is left")
    assert (told[-1].count(JobState.PENDING), told[-1].share, told[-1].collected) == (0, 1.0, 3)
    assert (await store.scan()).frame.height == 3


async def test_a_queue_without_jobs_is_drained_at_once(store: SampleStore) -> None:
    assert (await _drain(Queue(), store)).is_drained


async def test_a_full_batch_is_stored_without_waiting(store: SampleStore) -> None:
    queue = Queue()
    _work_off(queue, 6)
    await _drain(queue, store, batch_size=2, store_every_s=60.0)
    assert len((await store.visible()).manifests) >= 2  # the end alone makes one, of whatever is left


async def test_a_drain_that_is_told_to_stop_stores_what_it_has_and_the_next_one_goes_on(
    store: SampleStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate")
    queue, stop = Queue(), asyncio.Event()
    _work_off(queue, 5)
    work = queue.then

    def work_then_stop() -> None:
        if queue.states[JobState.PENDING] == 3:
            stop.set()
        work()

    queue.then = work_then_stop
    result = await _drain(queue, store, stop=stop)
    assert (result.is_drained, result.stopped_by) == (False, "stopped by request")
    ends = [line for line in caplog.messages if line.startswith("campaign_stopp")]
    assert len(ends) == 2
    assert all("stopped by request" in line and "everything is done" not in line for line in ends)
    before = (await store.scan()).frame.height
    assert 0 < before == result.stored
    queue.then = work
    rest = await _drain(queue, store)
    assert (rest.is_drained, rest.stored, rest.known) == (True, 5 - before, before)
    assert (await store.scan()).frame.height == 5


async def test_a_drain_that_is_told_to_stop_does_not_wait_for_an_answer(store: SampleStore) -> None:
    class Silent(Queue):
        async def statistics(self) -> StatisticsOut:
            stop.set()
            await asyncio.Event().wait()
            raise AssertionError

    stop = asyncio.Event()
    result = await _drain(Silent(), store, stop=stop)
    assert (result.is_drained, result.stopped_by) == (False, "stopped before the queue was read")


async def test_a_drain_ends_when_its_time_is_over(store: SampleStore) -> None:
    queue = Queue()
    queue.states[JobState.PENDING] = 1
    queue.lanes = [lane(pending=1)]
    result = await _drain(queue, store, duration_s=0.05)
    assert (result.is_drained, result.stopped_by) == (False, "its time is over")


async def test_a_store_that_is_away_for_a_while_costs_nothing(store: SampleStore) -> None:
    queue, failing = Queue(), FailingStore(store)
    _work_off(queue, 4)
    failing.fail_before = 2
    result = await _drain(queue, failing, batch_size=1)
    assert (result.stored, (await store.scan()).frame.height) == (4, 4)


async def test_a_store_that_stays_away_is_told_in_the_end(store: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STOP_WITHIN_S", 0.2)
    queue, failing = Queue(), FailingStore(store)
    _work_off(queue, 1)
    failing.fail_before = 1_000
    with pytest.raises(errors.StoreError, match=r"1 samples stay in the queue .*the disk is away.* run this again"):
        await _drain(queue, failing)


async def test_what_was_fetched_is_stored_when_the_queue_stops_answering(store: SampleStore) -> None:
    class Dying(Queue):
        async def statistics(self) -> StatisticsOut:
            if self.asked:
                raise errors.HeadgateError("the queue is gone")
            return await super().statistics()

    queue = Dying()
    queue.complete(job("j0"))
    queue.states[JobState.PENDING] = 1
    with pytest.raises(errors.HeadgateError, match="the queue is gone"):
        await _drain(queue, store)
    assert (await store.scan()).frame.height == 1


async def test_progress_counts_jobs_and_scores_by_team_and_task(store: SampleStore) -> None:
    queue, told = Queue(), list[QueueProgress]()
    queue.complete(job("j0", result={"q_score": 1.0}), job("j1", result={"q_score": 0.0}))
    queue.lanes = [
        lane(done=1, pending=2, pool="p", is_served=False),
        lane(done=1, dead=4, pending=1, pool="q"),
        lane(team="Team B", task="x y", in_progress=1),
    ]
    await _drain(queue, store, told=told)
    other, radio = told[-1].tasks
    assert (other.team, other.task, other.in_progress, other.scores.scored) == ("Team B", "x y", 1, 0)
    assert (radio.pending, radio.done, radio.dead, radio.unserved) == (3, 2, 4, 2)
    assert radio.scores.estimate is not None
    assert radio.scores.estimate.mean == 0.5
    assert told[-1].unserved == 2


async def test_every_completed_job_is_stored_with_the_server_that_it_had(store: SampleStore) -> None:
    queue = Queue(page=2)
    for number in range(5):
        queue.complete(job(f"j{number}", team=f"t{number}", task=f"task{number % 2}"), server=f"team_a/{number}")
    assert (await _drain(queue, store)).stored == 5
    rows = await _rows(store)
    assert sorted(why.split("server ")[1] for why in rows["why"]) == [f"team_a/{number}" for number in range(5)]
    assert set(rows["environment"]) == {"task0", "task1"}


async def test_a_row_is_what_its_job_says_however_it_came_here(store: SampleStore) -> None:
    queue, one = Queue(), job("j0", result={"q_score": 0.5, "steps": 7, "seed": 3})
    queue.complete(one)
    await _drain(queue, store)
    (row,) = (await _rows(store)).to_dicts()
    told = asdict(sample_of_job(one, JobSampleRules()))
    assert {name: row[name] for name in told} == told


async def test_results_that_lie_in_files_are_read_there(store: SampleStore, tmp_path: Path) -> None:
    (tmp_path / "team_a/metrics").mkdir(parents=True)
    (tmp_path / "team_a/metrics/radio_7.json").write_text('{"q_score": {"final": 0.25}}')
    queue = Queue()
    queue.complete(job("j0", result={}))
    await _drain(queue, store, results=ResultFolder(tmp_path))
    assert list((await _rows(store))["score"]) == [0.25]


async def test_draining_again_stores_what_is_new_and_nothing_else(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0"), job("j1"))
    await _drain(queue, store)
    queue.complete(job("j2"), job("j3", task="other"))
    second = await _drain(queue, store)
    assert (second.stored, second.known) == (2, 2)
    assert (await _rows(store)).height == 4


async def test_a_batch_whose_answer_was_lost_is_stored_once(store: SampleStore) -> None:
    queue, failing = Queue(), FailingStore(store)
    queue.complete(job("j0"), job("j1"))
    failing.fail_after = 1
    await _drain(queue, failing)
    assert (await _rows(store)).height == 2


async def test_another_campaign_or_queue_has_samples_of_its_own(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0"))
    for sample_rules in ({}, {"campaign": "second"}, {"queue": "other"}):
        assert (await _drain(queue, store, sample_rules=JobSampleRules(**sample_rules))).stored == 1
    summary = await store.summary(BEGAN)
    assert [(pair.model, pair.environment, pair.count) for pair in summary.pairs] == [("team_a@main", "radio", 3)]


async def test_a_queue_that_was_made_anew_is_not_taken_for_the_one_before(store: SampleStore) -> None:
    queue, other = Queue(), Queue()
    queue.complete(job("j0"))
    await _drain(queue, store)
    other.complete(job("j0", finished_at=BEGAN + 500))
    with pytest.raises(errors.InvalidInputError, match="another evaluation of job 'j0' of queue 'main'"):
        await _drain(other, store)


async def test_jobs_of_one_task_are_counted_each_however_they_are_numbered(store: SampleStore) -> None:
    queue = Queue(page=100)
    queue.complete(*(job(f"j{number}", seq=1, instance="") for number in range(50)))
    await _drain(queue, store)
    (pair,) = (await store.summary(BEGAN)).pairs
    assert pair.count == 50


async def test_scores_are_counted_over_all_runs(store: SampleStore) -> None:
    queue = Queue()
    queue.lanes = [lane()]
    queue.complete(job("j0", result={"q_score": 1}), job("j1", result={"q_score": 0}))
    await _drain(queue, store)
    queue.complete(job("j2", result={}))
    tally = (await _drain(queue, store)).progress.tasks[0].scores
    assert (tally.scored, tally.unscored, tally.is_binary) == (2, 1, True)
    assert tally.estimate is not None
    assert (tally.estimate.mean, tally.estimate.method) == (0.5, "wilson")


async def test_a_row_that_the_store_refuses_is_kept_aside_and_told(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0", finished_at=12.0, claimed_at=11.0), job("j1"))
    result = await _drain(queue, store)
    assert (result.stored, result.quarantined) == (1, 1)


async def test_a_look_that_was_cancelled_goes_on_where_it_was(store: SampleStore) -> None:
    class Stuck(Queue):
        async def results(self, after: int = 0, limit: int = 1000) -> ResultsOut:
            if after == 4 and not is_stuck.is_set():
                is_stuck.set()
                await asyncio.Event().wait()
            return await super().results(after, limit)

    is_stuck, queue = asyncio.Event(), Stuck()
    queue.complete(*(job(f"j{number}") for number in range(6)))
    collector = JobCollector(queue, store, JobSampleRules())  # type: ignore[arg-type]
    looking = asyncio.create_task(collector.look())
    await is_stuck.wait()
    looking.cancel()
    await asyncio.wait([looking])
    assert collector.fresh == 4
    await collector.look()
    assert collector.fresh == 6


def test_a_tally_has_the_interval_of_its_scores() -> None:
    tally = ScoreTally()
    assert tally.estimate is None
    for score in (0.2, 0.4, 0.9):
        tally = tally.with_score(score)
    assert tally.estimate is not None
    assert (round(tally.estimate.mean, 3), tally.estimate.samples, tally.estimate.method) == (0.5, 3, "t")


async def _rows(store: SampleStore) -> pl.DataFrame:
    scan = await store.scan()
    assert (scan.duplicates, scan.problems) == (0, ())
    return scan.frame
