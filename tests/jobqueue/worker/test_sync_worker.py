"""The worker for programs that block, in this thread and as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.jobqueue.worker import LeaseLost, SyncWorker
from tests.jobqueue.worker.queue_site import FastClock, QueueSite


def test_a_job_is_worked_on_while_heartbeats_go_on(site: QueueSite, tmp_path: Path) -> None:
    site.register()
    site.submit("1", pool="p")
    with SyncWorker(site.url, name="w", lease_s=10) as worker:
        for job in worker.jobs(stop_when_empty=True):
            with job, job.reserve() as server:
                assert (server.port, job.server, job.attempt) == (9_000, server, 1)
                job.progress()
                artifact = job.publish(tmp_path, {"q_score": {"final": 1.0}}, versions={"simulator": "7"})
                job.complete({"q_score": {"final": 1.0}}, artifact=artifact)
    assert site.job("1").result_ref == str(tmp_path / "a/metrics/t_1.json")
    assert '"simulator": "7"' in (tmp_path / "a/metrics/t_1.json").read_text()


def test_what_the_work_raises_ends_its_job_alone(site: QueueSite) -> None:
    site.submit("1", "2", max_attempts=1)
    with SyncWorker(site.url) as worker:
        for job in worker.jobs(stop_when_empty=True):
            with job:
                raise RuntimeError(f"no {job.id}")
    assert [site.job(job_id).last_error for job_id in "12"] == ["RuntimeError: no 1", "RuntimeError: no 2"]


def test_a_lost_lease_interrupts_the_main_thread_wherever_it_is(site: QueueSite) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    site.submit("1")
    with SyncWorker(site.url, clock=FastClock(10), lease_s=30) as worker:
        for job in worker.jobs(stop_when_empty=True):
            with job:
                threading.Thread(target=site.withdraw, args=("1",)).start()
                time.sleep(60)
                pytest.fail("it was not interrupted")
            assert job.is_lost
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_simulator_that_catches_everything_is_interrupted_all_the_same(site: QueueSite) -> None:
    site.submit("1")
    with SyncWorker(site.url, clock=FastClock(10), lease_s=30) as worker:
        for job in worker.jobs(stop_when_empty=True):
            with job:
                site.withdraw("1")
                for _ in range(100):
                    try:
                        time.sleep(1)
                    except Exception:  # noqa: BLE001 - as simulators do
                        continue
                pytest.fail("it was not interrupted")


def test_in_another_thread_a_lost_lease_shows_at_the_next_check(site: QueueSite) -> None:
    site.submit("1")
    seen: list[str] = []

    def work() -> None:
        with SyncWorker(site.url, clock=FastClock(10), lease_s=30) as worker:
            for job in worker.jobs(stop_when_empty=True):
                with job:
                    site.withdraw("1")
                    site.until(lambda: job.is_lost)  # noqa: B023 - called at once
                    try:
                        job.progress()
                    except LeaseLost as error:
                        seen.append(str(error))
                        raise

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert "withdrawn" in seen[0]


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """What interrupts the main thread as Ctrl-C does; the background jobs of a shell handle no SIGINT by themselves."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_gives_the_job_back_uncharged(site: QueueSite, ctrl_c: Callable[[], None]) -> None:
    def work() -> None:
        with SyncWorker(site.url) as worker:
            for job in worker.jobs():
                with job:
                    ctrl_c()
                    time.sleep(60)

    site.submit("1")
    with pytest.raises(KeyboardInterrupt):
        work()
    given_back = site.job("1")
    assert (given_back.state, given_back.failures) == ("pending", 0)


def test_ctrl_c_ends_a_worker_that_waits_for_a_job(site: QueueSite, ctrl_c: Callable[[], None]) -> None:
    def interrupt() -> None:
        with site.client as client:
            site.until(lambda: client.statistics().waiting_claims == 1)
        ctrl_c()

    def work() -> None:
        with SyncWorker(site.url) as worker:
            assert not list(worker.jobs())

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert not [thread for thread in threading.enumerate() if thread.name == "headgate-worker"]


def test_an_address_that_is_none_is_said_at_once() -> None:
    from headgate.core.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match="must be a URL"), SyncWorker("nowhere"):
        pass


@pytest.mark.slow
def test_sigterm_gives_the_job_back_and_ends_the_program_with_143(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    working = tmp_path / "working"
    script = f"""
import time
from headgate.jobqueue.worker import SyncWorker
with SyncWorker({site.url!r}) as worker:
    for job in worker.jobs():
        with job:
            open({str(working)!r}, "w").close()
            time.sleep(300)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        site.until(working.exists, 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.wait()
    job = site.job("1")
    assert (job.state, job.failures) == ("pending", 0)


@pytest.mark.slow
def test_sigterm_ends_an_asynchronous_program_in_the_same_way(site: QueueSite) -> None:
    site.submit("1")
    script = f"""
import asyncio
from headgate.jobqueue.worker import JobQueueClient, Worker
async def main():
    async with JobQueueClient({site.url!r}) as client, Worker(client) as worker:
        async for job in worker.jobs():
            async with job:
                await asyncio.Event().wait()
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        site.until_state("1", "in_progress", 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.wait()
    assert (site.job("1").state, site.job("1").failures) == ("pending", 0)
