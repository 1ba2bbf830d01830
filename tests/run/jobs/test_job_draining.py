"""Driving a queue to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headgate.core import errors
from headgate.jobqueue import JobState
from headgate.jobqueue.wire_servers import LaneOut, StatisticsOut
from headgate.run.job_collector import JobCollector
from headgate.run.job_samples import JobSampleRules
from headgate.run.queue_drain import DrainResult, DrainRules, QueueProgress, drain_queue
from headgate.storage import SampleStore, open_store
from tests.run.jobs.values import BEGAN, FailingStore, Queue, job


class Clock:
    """Time that passes when somebody sleeps; `then` is called each time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: Any = lambda: None

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return BEGAN + self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()
        await asyncio.sleep(0)


def lane(team: str = "team_a", task: str = "radio", pool: str = "p", **more: Any) -> LaneOut:
    counts: dict[str, Any] = {"pending": 0, "in_progress": 0, "done": 0, "dead": 0, "is_served": True}
    return LaneOut(team=team, task=task, pool=pool, **(counts | more))


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    return open_store(str(tmp_path / "samples"))


async def _drain(
    queue: Queue,
    store: Any,
    clock: Clock,
    *,
    stop: asyncio.Event | None = None,
    told: list[QueueProgress] | None = None,
    **rules: Any,
) -> DrainResult:
    async def on_progress(progress: QueueProgress) -> None:
        if told is not None:
            told.append(progress)

    collector = JobCollector(queue, store, JobSampleRules(), monotonic=clock.monotonic)
    stop = stop or asyncio.Event()
    return await drain_queue(queue, collector, DrainRules(**rules), clock=clock, stop=stop, on_progress=on_progress)


def _work_off(queue: Queue, jobs: int) -> Any:
    """Return what completes one of so many pending jobs each time that it is called."""
    queue.states[JobState.PENDING] = jobs
    numbers = iter(range(jobs))

    def complete_one() -> None:
        number = next(numbers, None)
        if number is not None:
            queue.states[JobState.PENDING] -= 1
            queue.complete(job(f"j{number}"))

    return complete_one


async def test_a_drain_ends_when_no_job_is_left_and_has_stored_all_results(store: SampleStore) -> None:
    queue, clock, told = Queue(), Clock(), list[QueueProgress]()
    clock.then = _work_off(queue, 3)
    result = await _drain(queue, store, clock, told=told)
    assert (result.stored, result.is_drained, result.stopped_by) == (3, True, "no job is left")
    assert [progress.count(JobState.PENDING) for progress in told] == [3, 2, 1, 0]
    assert told[-1].share == 1.0
    assert (await store.scan()).frame.height == 3


async def test_a_queue_without_jobs_is_drained_at_once(store: SampleStore) -> None:
    assert (await _drain(Queue(), store, Clock())).is_drained


async def test_results_are_stored_in_few_batches_while_the_drain_goes_on(store: SampleStore) -> None:
    queue, clock = Queue(), Clock()
    clock.then = _work_off(queue, 30)
    await _drain(queue, store, clock, poll_s=5.0, store_every_s=60.0)
    assert len((await store.visible()).manifests) == 3
    assert (await store.scan()).frame.height == 30


async def test_a_full_batch_is_stored_without_waiting(store: SampleStore) -> None:
    queue, clock = Queue(), Clock()
    clock.then = _work_off(queue, 6)
    await _drain(queue, store, clock, batch_size=2)
    assert len((await store.visible()).manifests) == 3


async def test_a_drain_that_is_told_to_stop_stores_what_it_has_and_the_next_one_goes_on(store: SampleStore) -> None:
    queue, clock, stop = Queue(), Clock(), asyncio.Event()
    work = _work_off(queue, 5)

    def work_then_stop() -> None:
        work()
        if queue.states[JobState.PENDING] == 3:
            stop.set()

    clock.then = work_then_stop
    result = await _drain(queue, store, clock, stop=stop)
    assert (result.is_drained, result.stopped_by) == (False, "stopped by request")
    before = (await store.scan()).frame.height
    assert before == result.stored
    clock.then = work
    rest = await _drain(queue, store, clock)
    assert (rest.is_drained, rest.stored, rest.known) == (True, 5 - before, before)
    assert (await store.scan()).frame.height == 5


async def test_a_drain_that_is_told_to_stop_does_not_wait_for_an_answer(store: SampleStore) -> None:
    class Silent(Queue):
        async def statistics(self) -> StatisticsOut:
            stop.set()
            await asyncio.Event().wait()
            raise AssertionError

    stop = asyncio.Event()
    result = await _drain(Silent(), store, Clock(), stop=stop)
    assert (result.is_drained, result.stopped_by) == (False, "stopped by request")


async def test_a_drain_ends_when_its_time_is_over(store: SampleStore) -> None:
    queue, clock = Queue(), Clock()
    queue.states[JobState.PENDING] = 1
    result = await _drain(queue, store, clock, poll_s=5.0, duration_s=12.0)
    assert (result.is_drained, result.stopped_by, clock.now) == (False, "its time is over", 12.0)


async def test_a_store_that_is_away_for_a_while_costs_nothing(
    store: SampleStore, caplog: pytest.LogCaptureFixture
) -> None:
    queue, clock, failing = Queue(), Clock(), FailingStore(store)
    clock.then = _work_off(queue, 4)
    failing.fail_before = 6
    result = await _drain(queue, failing, clock, batch_size=1)
    assert (result.stored, (await store.scan()).frame.height) == (4, 4)
    assert caplog.text.count("The sample store accepts nothing") == 1


async def test_a_store_that_stays_away_is_told_in_the_end(store: SampleStore) -> None:
    queue, clock, failing = Queue(), Clock(), FailingStore(store)
    clock.then = _work_off(queue, 1)
    failing.fail_before = 1_000
    with pytest.raises(errors.StoreError, match="the disk is away"):
        await _drain(queue, failing, clock, store_patience_s=10.0)


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
        await _drain(queue, store, Clock())
    assert (await store.scan()).frame.height == 1


async def test_progress_counts_jobs_and_scores_by_team_and_task(store: SampleStore) -> None:
    queue, told = Queue(), list[QueueProgress]()
    queue.complete(job("j0", result={"q_score": 1.0}), job("j1", result={"q_score": 0.0}))
    queue.lanes = [
        lane(done=1, pending=2, pool="p", is_served=False),
        lane(done=1, dead=4, pending=1, pool="q"),
        lane(team="Team B", task="x y", in_progress=1),
    ]
    await _drain(queue, store, Clock(), told=told)
    other, radio = told[-1].tasks
    assert (other.team, other.task, other.in_progress, other.scores.scored) == ("Team B", "x y", 1, 0)
    assert (radio.pending, radio.done, radio.dead, radio.unserved) == (3, 2, 4, 2)
    assert radio.scores.estimate is not None
    assert radio.scores.estimate.mean == 0.5
    assert told[-1].unserved == 2
