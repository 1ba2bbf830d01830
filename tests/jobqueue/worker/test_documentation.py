"""The examples of the page on workers do what the text around them says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tests.jobqueue.worker.queue_site import QueueSite


def _example(containing: str) -> dict[str, Any]:
    page = "docs/how-to/jobqueue-workers.md"
    block = next(b for b in blocks("python") if b.page == page and containing in b.code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.code, f"{block.page}:{block.line}", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def two_jobs(site: QueueSite, monkeypatch: pytest.MonkeyPatch) -> QueueSite:
    site.register()
    site.submit("1", "2", pool="p")
    monkeypatch.setenv("JOB_QUEUE_URL", site.url)
    return site


class Simulation:
    def __init__(self, task: str, instance: str) -> None:
        assert (task, instance) == ("t", "1")

    def run(self, host: str, port: int) -> float:
        assert (host, port) == ("127.0.0.1", 9_000)
        return 0.5


class AsyncSimulation(Simulation):
    async def run(self, host: str, port: int) -> float:  # type: ignore[override]
        return super().run(host, port)


def test_the_example_that_blocks_works(two_jobs: QueueSite) -> None:
    _example("SyncWorker")["evaluate"](Simulation)
    assert [two_jobs.job(job_id).result for job_id in "12"] == [{"q_score": {"final": 0.5}}] * 2


async def test_the_example_with_asyncio_works(two_jobs: QueueSite) -> None:
    async def load(task: str, instance: str) -> AsyncSimulation:
        return AsyncSimulation(task, instance)

    await _example("HeldJob")["evaluate"](load)
    import asyncio

    jobs = [await asyncio.to_thread(two_jobs.job, job_id) for job_id in "12"]
    assert [job.state for job in jobs] == ["done", "done"]


def test_the_example_of_files_works(site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.jobqueue.worker import SyncWorker

    monkeypatch.chdir(tmp_path)
    site.submit("1")
    with SyncWorker(site.url) as worker:
        for job in worker.jobs(stop_when_empty=True):
            with job:
                _example("hand_in")["hand_in"](job, {"q_score": {"final": 0.5}})
    assert (tmp_path / "results/a/metrics/t_1.json").exists()
    assert site.job("1").result_ref == str(tmp_path / "results/a/metrics/t_1.json")
