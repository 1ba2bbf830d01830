"""The asynchronous worker against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue import JobState
from headgate.jobqueue.errors import MachineUnfitError, StaleLeaseError, WrongStateError
from headgate.jobqueue.worker import HeldJob, JobQueueClient, NoServerError, Worker, held_job
from tests.jobqueue.worker.queue_site import FastClock, QueueSite


async def test_a_job_is_worked_on_and_completed(site: QueueSite) -> None:
    site.submit("1", payload='{"seed":7}')
    seen = []
    async with site.async_client() as client, Worker(client, name="w") as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                seen.append((job.id, job.payload, job.attempt, job.epoch))
                await job.complete({"q_score": 0.5})
    done = await asyncio.to_thread(site.job, "1")
    assert seen == [("1", {"seed": 7}, 1, 1)]
    assert (done.state, done.result, done.worker) == ("done", {"q_score": 0.5}, "w")


async def test_what_the_work_raises_fails_the_attempt_and_the_worker_goes_on(site: QueueSite) -> None:
    site.submit("1", "2", max_attempts=1)
    async with site.async_client() as client, Worker(client) as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                raise ValueError(f"no such world for {job.id}, api_key=abcdef123456")
    dead = await asyncio.to_thread(site.job, "1")
    assert dead.state == "dead"
    assert dead.last_error == "ValueError: no such world for 1, api_key=[redacted]"
    assert (await asyncio.to_thread(site.job, "2")).state == "dead"


async def test_work_that_ends_without_a_word_has_failed(site: QueueSite) -> None:
    site.submit("1", max_attempts=1)
    async with site.async_client() as client, Worker(client) as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                pass
    assert "without complete()" in (await asyncio.to_thread(site.job, "1")).last_error


async def test_a_body_without_its_context_is_held_to_the_same(site: QueueSite) -> None:
    site.submit("1", max_attempts=1)

    async def run() -> None:
        async with site.async_client() as client, Worker(client) as worker:
            async for _ in worker.jobs():
                raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        await run()
    assert (await asyncio.to_thread(site.job, "1")).last_error == "ZeroDivisionError: division by zero"


async def test_a_cancelled_worker_gives_its_jobs_back_uncharged(site: QueueSite) -> None:
    site.submit("1", "2")
    holding: list[HeldJob] = []

    async def work(job: HeldJob) -> None:
        holding.append(job)
        await asyncio.Event().wait()

    async def run() -> None:
        async with site.async_client() as client, Worker(client, count=3) as worker:
            await worker.run(work)

    task = asyncio.create_task(run())
    await _until(lambda: len(holding) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for job_id in ("1", "2"):
        job = await asyncio.to_thread(site.job, job_id)
        assert (job.state, job.failures) == ("pending", 0)


async def test_one_worker_works_on_several_jobs_at_a_time(site: QueueSite) -> None:
    site.submit(*map(str, range(6)))
    together = asyncio.Barrier(3)

    async def work(job: HeldJob) -> None:
        await together.wait()
        await job.complete()

    async with asyncio.timeout(20), site.async_client() as client, Worker(client, count=3) as worker:
        await worker.run(work, stop_when_empty=True)
    assert {(await asyncio.to_thread(site.job, str(n))).state for n in range(6)} == {"done"}


async def test_no_more_jobs_are_taken_than_allowed(site: QueueSite) -> None:
    site.submit("1", "2", "3")
    async with site.async_client() as client, Worker(client, count=2) as worker:
        await worker.run(lambda job: job.complete(), stop_when_empty=True, max_jobs=2)
        jobs = [job.state async for job in client.all_jobs()]
    assert sorted(jobs) == ["done", "done", "pending"]


async def test_a_withdrawn_job_stops_at_once_and_the_next_one_begins(site: QueueSite) -> None:
    site.submit("1")
    stopped: list[str] = []
    async with site.async_client() as client, Worker(client, clock=FastClock(10), lease_s=30) as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                await client.withdraw(job.id, "not wanted")
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.append(job.loss)
            assert job.is_lost
    assert stopped
    assert "the job is dead: withdrawn: not wanted" in stopped[0]
    assert (await asyncio.to_thread(site.job, "1")).state == "dead"


async def test_a_result_of_a_lost_lease_is_refused(site: QueueSite) -> None:
    site.submit("1")
    async with site.async_client() as client, Worker(client) as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                await client.withdraw(job.id)
                with pytest.raises(StaleLeaseError):
                    await job.complete({"q_score": 1})
                assert job.is_lost
    assert (await asyncio.to_thread(site.happenings, "1"))[-1] == "late_result"


async def test_work_that_makes_no_progress_is_failed_as_stalled(site: QueueSite) -> None:
    site.submit("1", max_attempts=1)
    async with (
        site.async_client() as client,
        Worker(client, stall_after_s=20, clock=FastClock(50), lease_s=300) as worker,
    ):
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                await asyncio.Event().wait()
    assert (await asyncio.to_thread(site.job, "1")).last_error == "the work stalled: no progress for 20 s"


async def test_a_worker_that_cannot_be_heard_stops_its_work(site: QueueSite) -> None:
    site.submit("1")
    async with site.async_client() as client, Worker(client, clock=FastClock(25), lease_s=30) as worker:
        async for job in worker.jobs(max_jobs=1):
            async with job:
                await asyncio.to_thread(site.stop)
                await asyncio.Event().wait()
            assert "could not be renewed" in job.loss


async def test_a_job_that_its_worker_gave_up_is_given_back_as_soon_as_the_server_is_there(site: QueueSite) -> None:
    site.submit("1")
    async with site.async_client() as client, Worker(client, clock=FastClock(25), lease_s=30) as worker:
        async for job in worker.jobs(max_jobs=1):
            async with job:
                try:
                    await asyncio.to_thread(site.stop)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await asyncio.to_thread(site.stop)
                    await asyncio.to_thread(site.start)
                    raise
    job_now = await asyncio.to_thread(site.job, "1")
    assert (job_now.state, job_now.failures) == ("pending", 0)


async def test_a_server_that_was_away_is_found_again(site: QueueSite) -> None:
    site.submit("1")
    async with site.async_client() as client, Worker(client, lease_s=30) as worker:
        async for job in worker.jobs(max_jobs=1):
            async with job:
                await asyncio.to_thread(site.stop)
                completing = asyncio.create_task(job.complete({"q_score": 1}))
                await asyncio.sleep(0)
                await asyncio.to_thread(site.start)
                await completing
    assert (await asyncio.to_thread(site.job, "1")).state == "done"


async def test_a_job_has_a_policy_server_for_the_time_of_the_context(site: QueueSite) -> None:
    site.register()
    site.submit("1", pool="p")
    async with site.async_client() as client, Worker(client) as worker:
        async for job in worker.jobs(stop_when_empty=True):
            async with job:
                async with job.reserve() as server:
                    assert (server.host, server.port, server.index) == ("127.0.0.1", 9_000, 0)
                    assert (await client.resources())[0].job_id == "1"
                assert (await client.resources())[0].job_id is None
                await job.complete()


async def test_whoever_waits_for_a_policy_server_gets_it_when_it_is_free(site: QueueSite) -> None:
    site.register()
    site.submit("1", "2", pool="p")
    order: list[str] = []

    async def work(job: HeldJob) -> None:
        order.append(f"loaded {job.id}")
        async with job.reserve() as server:
            await _until(lambda: len([line for line in order if line.startswith("loaded")]) == 2)
            order.append(f"got {server.index}")
        await job.complete()

    async with asyncio.timeout(20), site.async_client() as client, Worker(client, count=2) as worker:
        await worker.run(work, stop_when_empty=True, max_jobs=2)
    assert sorted(order[:2]) == ["loaded 1", "loaded 2"]
    assert order[2:] == ["got 0", "got 0"]


async def test_a_job_given_back_by_an_unfit_machine_is_none_of_max_jobs(
    site: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.jobqueue.worker.worker.UNFIT_S", 0.05)
    site.submit("1", "2", "3")
    tries: list[str] = []

    async def work(job: HeldJob) -> None:
        tries.append(job.id)
        if len(tries) <= 2:
            raise MachineUnfitError("the disk is full")
        await job.complete()

    async with asyncio.timeout(20), site.async_client() as client, Worker(client) as worker:
        await worker.run(work, max_jobs=2)
    states = [(await asyncio.to_thread(site.job, id_)).state for id_ in ("1", "2", "3")]
    assert sorted(states) == ["done", "done", "pending"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_job_that_began_before_the_machine_was_unfit_does_not_make_it_fit(site: QueueSite, fails: bool) -> None:
    site.submit("1", "2", "3", max_attempts=1)
    tries: list[str] = []
    is_full = asyncio.Event()

    async def work(job: HeldJob) -> None:
        tries.append(job.id)
        if len(tries) == 1:
            await is_full.wait()
            if fails:
                raise ValueError("of its own")
            await job.complete()
        else:
            asyncio.get_running_loop().call_later(0.1, is_full.set)
            raise MachineUnfitError("the disk is full")

    async with asyncio.timeout(20), site.async_client() as client, Worker(client, count=2) as worker:
        with pytest.raises(MachineUnfitError, match="the disk is full"):
            await worker.run(work, stop_when_empty=True)
    assert len(tries) == 2


async def test_no_policy_server_in_time_is_an_error_of_its_own(site: QueueSite) -> None:
    site.register()
    site.submit("1", "2", pool="p", max_attempts=1)
    async with site.async_client() as client, Worker(client) as worker:
        first = await worker.claim()
        second = await worker.claim()
        assert first is not None
        assert second is not None
        await first.reserve_server()
        with pytest.raises(NoServerError, match="that serve it: 1"):
            await second.reserve_server(timeout_s=0.01)


async def test_a_job_whose_servers_are_all_gone_is_given_back_without_blame(
    site: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_job, "POLL_S", 0.05)
    monkeypatch.setattr(held_job, "UNSERVED_S", 0.2)
    site.register()
    site.submit("1", pool="p")
    async with site.async_client() as client, Worker(client) as worker:
        job = await worker.claim()
        assert job is not None
        await client.drain("p", 0)
        async with job:
            await job.reserve_server()
    there = site.job("1")
    assert (there.state, there.failures) == (JobState.PENDING, 0)


async def test_a_job_without_a_pool_needs_no_server(site: QueueSite) -> None:
    site.submit("1")
    async with site.async_client() as client, Worker(client) as worker:
        job = await worker.claim()
        assert job is not None
        with pytest.raises(WrongStateError):
            await job.reserve_server()


async def test_a_job_whose_server_is_taken_away_is_stopped_and_given_back(site: QueueSite) -> None:
    site.register()
    site.submit("1", pool="p")
    async with site.async_client() as client, Worker(client, clock=FastClock(10), lease_s=30) as worker:
        async for job in worker.jobs(max_jobs=1):
            async with job, job.reserve():
                await client.remove("p", 0, force=True)
                await asyncio.Event().wait()
            assert job.loss == "its policy server was taken away"
    given_back = await asyncio.to_thread(site.job, "1")
    assert (given_back.state, given_back.failures) == ("pending", 0)


@pytest.mark.parametrize(
    "options", [{"lease_s": 9.0}, {"lease_s": float("nan")}, {"name": "a\x00b"}, {"teams": [""]}, {"count": 0}]
)
async def test_a_worker_that_no_queue_would_take_is_refused(options: dict[str, Any]) -> None:
    async with JobQueueClient("http://127.0.0.1:1") as client:
        with pytest.raises(InvalidInputError):
            Worker(client, **options)


async def test_an_artifact_goes_along_with_its_checksum(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    path = tmp_path / "result.json"
    path.write_text("{}")
    async with site.async_client() as client, Worker(client) as worker:
        await worker.run(lambda job: job.complete({}, artifact=path), stop_when_empty=True)
    done = await asyncio.to_thread(site.job, "1")
    assert done.result_ref == str(path)
    assert done.checksum == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


async def _until(is_so, within_s: float = 15.0) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.01)
