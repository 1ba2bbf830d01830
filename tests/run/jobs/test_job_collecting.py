"""Collecting completed jobs into a store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import polars as pl
import pytest

from headgate.core import errors
from headgate.jobqueue.generator import ResultFolder
from headgate.jobqueue.wire import ResultsOut
from headgate.run.job_collector import JobCollector, ScoreTally
from headgate.run.job_samples import JobSampleRules
from headgate.storage import SampleStore, open_store
from tests.run.jobs.values import BEGAN, FailingStore, Queue, job


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    return open_store(str(tmp_path / "samples"))


def _collector(source: Queue, store: object, **rules: str) -> JobCollector:
    return JobCollector(source, store, JobSampleRules(**rules), monotonic=lambda: 0.0)  # type: ignore[arg-type]


async def _rows(store: SampleStore) -> pl.DataFrame:
    scan = await store.scan()
    assert (scan.duplicates, scan.problems) == (0, ())
    return scan.frame


async def test_every_completed_job_is_stored_with_the_server_that_it_had(store: SampleStore) -> None:
    queue = Queue(page=2)
    for number in range(5):
        queue.complete(job(f"j{number}", task=f"task{number % 2}"), server=f"team_a/{number}")
    collector = _collector(queue, store)
    assert await collector.fetch() == 5
    assert collector.waiting == 5
    assert await collector.store() == 5
    rows = await _rows(store)
    assert sorted(why.split("server ")[1] for why in rows["why"]) == [f"team_a/{number}" for number in range(5)]
    assert set(rows["environment"]) == {"task0", "task1"}


async def test_results_that_lie_in_files_are_read_there(store: SampleStore, tmp_path: Path) -> None:
    (tmp_path / "team_a/metrics").mkdir(parents=True)
    (tmp_path / "team_a/metrics/radio_7.json").write_text('{"q_score": {"final": 0.25}}')
    queue = Queue()
    queue.complete(job("j0", result={}))
    collector = JobCollector(
        queue, store, JobSampleRules(), monotonic=lambda: 0.0, results=ResultFolder(tmp_path)
    )  # fmt: skip
    await collector.fetch()
    await collector.store()
    assert list((await _rows(store))["score"]) == [0.25]


async def test_collecting_again_stores_what_is_new_and_nothing_else(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0"), job("j1"))
    first = _collector(queue, store)
    await first.fetch()
    await first.store()
    queue.complete(job("j2"))
    assert await first.fetch() == 1
    await first.store()
    queue.complete(job("j3"), job("j4", task="other"))
    second = _collector(queue, store)
    assert await second.fetch() == 2
    await second.store()
    assert (second.stored, second.known) == (2, 3)
    assert (await _rows(store)).height == 5


async def test_what_was_fetched_and_not_stored_is_fetched_by_the_next_collector(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0"), job("j1"))
    await _collector(queue, store).fetch()
    second = _collector(queue, store)
    assert await second.fetch() == 2
    await second.store()
    assert (await _rows(store)).height == 2


@pytest.mark.parametrize("fails", ["fail_before", "fail_after"])
async def test_a_batch_whose_storing_failed_is_stored_once(store: SampleStore, fails: str) -> None:
    queue, failing = Queue(), FailingStore(store)
    queue.complete(job("j0"), job("j1"))
    collector = _collector(queue, failing)
    await collector.fetch()
    setattr(failing, fails, 1)
    with pytest.raises(errors.StoreError):
        await collector.store()
    queue.complete(job("j2"))
    await collector.fetch()
    assert collector.waiting == 3
    await collector.store()
    assert (await _rows(store)).height == 3
    assert len((await store.visible()).manifests) == 2


async def test_a_fetch_that_was_cancelled_goes_on_where_it_was(store: SampleStore) -> None:
    class Stuck(Queue):
        async def results(self, after: int = 0, limit: int = 1000) -> ResultsOut:
            if after == 4 and not is_stuck.is_set():
                is_stuck.set()
                await asyncio.Event().wait()
            return await super().results(after, limit)

    is_stuck, queue = asyncio.Event(), Stuck()
    queue.complete(*(job(f"j{number}") for number in range(6)))
    collector = _collector(queue, store)
    fetching = asyncio.create_task(collector.fetch())
    await is_stuck.wait()
    fetching.cancel()
    await asyncio.wait([fetching])
    assert collector.waiting == 4
    await collector.fetch()
    await collector.store()
    assert (await _rows(store)).height == 6


async def test_another_campaign_or_queue_has_samples_of_its_own(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0"))
    for rules in ({}, {"campaign": "second"}, {"queue": "other"}):
        collector = _collector(queue, store, **rules)
        assert await collector.fetch() == 1
        await collector.store()
    summary = await store.summary(BEGAN)
    assert [(pair.model, pair.environment, pair.count) for pair in summary.pairs] == [("team_a@main", "radio", 3)]


async def test_a_queue_that_was_made_anew_is_not_taken_for_the_one_before(store: SampleStore) -> None:
    queue, other = Queue(), Queue()
    queue.complete(job("j0"))
    collector = _collector(queue, store)
    await collector.fetch()
    await collector.store()
    other.complete(job("j0", finished_at=BEGAN + 500))
    with pytest.raises(errors.InvalidInputError, match="another evaluation of job 'j0' of queue 'main'"):
        await _collector(other, store).fetch()


async def test_jobs_of_one_task_are_counted_each_however_they_are_numbered(store: SampleStore) -> None:
    queue = Queue(page=100)
    queue.complete(*(job(f"j{number}", seq=1, instance="") for number in range(50)))
    collector = _collector(queue, store)
    await collector.fetch()
    await collector.store()
    (pair,) = (await store.summary(BEGAN)).pairs
    assert pair.count == 50


async def test_scores_are_counted_over_all_runs(store: SampleStore) -> None:
    queue = Queue()
    queue.complete(job("j0", result={"q_score": 1}), job("j1", result={"q_score": 0}))
    first = _collector(queue, store)
    await first.fetch()
    await first.store()
    queue.complete(job("j2", result={}))
    second = _collector(queue, store)
    await second.fetch()
    tally = second.scores["team_a@main", "radio"]
    assert (tally.scored, tally.unscored, tally.is_binary) == (2, 1, True)
    assert tally.estimate is not None
    assert (tally.estimate.mean, tally.estimate.method) == (0.5, "wilson")


def test_a_tally_has_the_interval_of_its_scores() -> None:
    tally = ScoreTally()
    assert tally.estimate is None
    for score in (0.2, 0.4, 0.9):
        tally = tally.with_score(score)
    assert tally.estimate is not None
    assert (round(tally.estimate.mean, 3), tally.estimate.samples, tally.estimate.method) == (0.5, 3, "t")


async def test_a_row_that_the_store_refuses_is_kept_aside_and_told(
    store: SampleStore, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue()
    queue.complete(job("j0", finished_at=12.0, claimed_at=11.0), job("j1"))
    collector = _collector(queue, store)
    await collector.fetch()
    assert await collector.store() == 1
    assert collector.quarantined == 1
    assert "1 samples of jobs broke a rule of the store" in caplog.text
