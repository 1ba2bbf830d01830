"""`headgate jobqueue collect` against a job queue that runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headgate.cli.jobqueue import collect as collect_command
from headgate.cli.main import main
from headgate.jobqueue import JobSpec
from headgate.jobqueue.worker import HeldJob, JobQueueClient, Worker
from headgate.storage import open_store
from tests.jobqueue.worker.queue_site import queue_site

Collect = Callable[..., tuple[int, Any]]


async def _evaluated(url: str, jobs: int) -> None:
    async def work(job: HeldJob) -> None:
        await job.complete({"q_score": 0.5} if job.id != "j2" else {"q_score": 7})

    async with JobQueueClient(url) as client:
        await client.submit([JobSpec(f"j{number}", "team_a", "radio", str(number)) for number in range(3)])
        async with Worker(client) as worker:
            await worker.run(work, stop_when_empty=True, max_jobs=jobs)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[str]:
    """The address of a queue with three jobs, two of them done; it is served from another thread."""
    with queue_site(tmp_path) as site:
        asyncio.run(_evaluated(site.url, 2))
        yield site.url


@pytest.fixture
def collect(queue: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Collect:
    def run(*words: str) -> tuple[int, Any]:
        status = main(["jobqueue", "collect", "--url", queue, "--store", str(tmp_path / "s"), "--json", *words])
        return status, json.loads(capfd.readouterr().out)

    return run


def test_a_queue_that_was_never_read_is_not_told_as_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unused_tcp_port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def stop_at_once(stop: asyncio.Event) -> None:
        stop.set()

    monkeypatch.setattr(collect_command, "stop_on_signals", stop_at_once)
    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert main(["jobqueue", "collect", "--follow", "--url", url, "--store", str(tmp_path / "s")]) == 0
    assert "stored before: 0; stopped before the queue was read" in capfd.readouterr().out


def _stored(folder: Path) -> pl.DataFrame:
    scan = asyncio.run(open_store(str(folder)).scan())
    assert scan.duplicates == 0
    return scan.frame.sort("index")


def test_results_become_samples_and_are_taken_once(collect: Collect, queue: str, tmp_path: Path) -> None:
    status, told = collect()
    assert (status, told["stored"], told["known"], told["open_jobs"]) == (0, 2, 0, 1)
    assert collect()[1]["known"] == 2
    asyncio.run(_evaluated(queue, 1))
    status, told = collect("--follow", "--poll-s", "0.05")
    assert (told["stored"], told["unscored"], told["is_drained"], told["stopped_by"]) == (1, 1, True, "no job is left")
    rows = _stored(tmp_path / "s")
    assert list(rows["score"]) == [0.5, 0.5, None]
    assert rows["error"][2] == "q_score of the result must be in [0, 1] (got 7)"


def test_another_campaign_queue_or_field_is_what_the_samples_have(collect: Collect, tmp_path: Path) -> None:
    collect("--queue", "b1k", "--campaign", "challenge", "--score-field", "scores.mean")
    rows = _stored(tmp_path / "s")
    assert set(rows["stage"]) == {"job:b1k"}
    assert set(rows["campaign"]) == {"challenge"}
    assert rows["score"].null_count() == 2


def test_people_get_a_table_of_teams_and_tasks(
    queue: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_JOBQUEUE_URL", queue)
    assert main(["jobqueue", "collect", "--store", str(tmp_path / "s")]) == 0
    said = capfd.readouterr().out
    assert "team_a" in said
    assert f"new samples in {tmp_path / 's'}: 2; stored before: 0; unfinished jobs: 1" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--queue", "a b"], "queue 'job:a b' is not a usable name"),
        (["--poll-s", "0"], "--poll-s must be > 0 (got 0)"),
        (["--score-field", ""], "the score's field must have a name"),
    ],
)
def test_what_cannot_be_used_is_said(words: list[str], told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["jobqueue", "collect", *words]) == 2
    assert told in capfd.readouterr().err
