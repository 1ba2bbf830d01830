"""Samples that outside workers take: a real job queue, workers of its kit, and runs that come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headgate.config import Settings
from headgate.core import Model, ModelBudget, Price, Secret
from headgate.core.errors import InvalidSettingError, UnknownEnvironmentError
from headgate.core.status import CampaignStatus
from headgate.jobqueue import JobState
from headgate.jobqueue.server import ServerSettings, running_server
from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.worker import HeldJob, JobQueueClient, Worker
from headgate.models import client
from headgate.run import (
    RunResult,
    models_at_hand,
    outside_executors,
    outside_workers,
    run_campaign,
    sample_jobs,
    sampled_environments,
)
from headgate.run.outside_workers import LEAD
from headgate.sampling import RosterSource, StaticRoster
from headgate.storage import open_store

Work = Callable[[HeldJob], Awaitable[None]]

PRICED = ModelBudget(price=Price.of(10, 20, cached=1))
MODELS = (
    Model("m0", base_url="http://user:secret@127.0.0.1:1/v1", api_key=Secret("key-of-m0"), max_parallel=4),
    Model(
        "m1", uid=1, base_url="http://127.0.0.1:1/v1", options=(("temperature", 0.5),), max_parallel=4, budget=PRICED
    ),
)
BOTH: dict[str, Any] = {"environments": ("robot:arm", "affine:sat"), "instances": 2}
"""One environment by outside workers, one here."""


@dataclass
class Site:
    """A folder with a queue, a journal and a store, and what happens around a run in it."""

    folder: Path
    url: str = ""
    seen: list[CampaignStatus] = field(default_factory=list)

    def settings(self, **changes: Any) -> Settings:
        given = {
            "journal": self.folder / "journal",
            "store": str(self.folder / "samples"),
            "environments": ("robot:arm",),
            "executors": "robot:*=jobqueue",
            "jobqueue_url": self.url,
            "drain_timeout_s": 1.0,
            "early_stop": False,
        }
        return Settings(**(given | changes))

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[JobQueueClient]:
        """Serve the queue, at the address that it had before."""
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        settings = ServerSettings(database=f"sqlite:///{self.folder / 'jobqueue.db'}", port=port, statistics_every_s=0)
        async with running_server(settings) as server, JobQueueClient(server.url) as client:
            self.url = server.url
            yield client

    @asynccontextmanager
    async def workers(self, work: Work, count: int = 2) -> AsyncIterator[None]:
        async with JobQueueClient(self.url) as client, Worker(client, count=count) as worker:
            working = asyncio.create_task(worker.run(work))
            try:
                yield
            finally:
                working.cancel()
                await asyncio.wait([working])

    async def run(
        self,
        *,
        stop: asyncio.Event | None = None,
        roster: RosterSource | None = None,
        duration_s: float | None = None,
        **changes: Any,
    ) -> RunResult:
        async def note(status: CampaignStatus) -> None:
            self.seen.append(status)

        return await run_campaign(
            self.settings(**changes),
            roster=roster or StaticRoster(MODELS),
            duration_s=duration_s,
            stop=stop,
            on_status=note,
            every_s=0.02,
        )

    async def rows(self) -> pl.DataFrame:
        scan = await open_store(str(self.folder / "samples")).scan()
        assert (scan.duplicates, scan.problems) == (0, ())
        return scan.frame.sort("model", "environment", "sequence")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - neither run nor queue tells it
            await asyncio.sleep(0.02)


async def _jobs(client: JobQueueClient, state: JobState | None = None) -> list[JobOut]:
    return [job async for job in client.all_jobs(state=state)]


async def _complete(job: HeldJob) -> None:
    counts = {"prompt_tokens": 7, "completion_tokens": 2, "cached_tokens": 4, "turns": 2}
    await job.complete({"score": 0.5, "success": True, "why": "half of it", **counts})


async def test_each_sample_is_a_job_of_its_id_and_its_result_the_sample(site: Site) -> None:
    async def work(job: HeldJob) -> None:
        if job.payload["index"] == 1:
            await job.fail("the arm is stuck", retry=False)
        elif job.payload["index"] == 2:
            await job.complete({"score": 0.0, "error_kind": "bad_answer", "error": "no grip"})
        else:
            await _complete(job)

    async with site.queue() as queue, site.workers(work):
        result = await site.run(instances=3)
        jobs = await _jobs(queue)
    rows = await site.rows()
    assert (result.samples, result.scored, result.open_tasks) == (6, 4, 0)
    assert {job.id for job in jobs} == set(rows["task_id"])
    assert {(job.team, job.task) for job in jobs} == {("m0@main", "robot:arm"), ("m1@main", "robot:arm")}
    told = json.dumps([job.payload for job in jobs])
    assert "secret" not in told
    assert "key-of-m0" not in told
    assert json.loads(told)[0]["model"]["base_url"] == "http://127.0.0.1:1/v1"
    first, second, third = rows.filter(pl.col("model") == "m1@main").to_dicts()
    assert (first["score"], first["success"], first["why"], first["turns"]) == (0.5, True, "half of it", 2)
    assert (first["prompt_tokens"], first["seed"]) == (7, jobs[0].payload["seed"])
    assert (first["cached_tokens"], first["cost_micro"]) == (4, 3 * 10 + 4 * 1 + 2 * 20)
    assert third["cost_micro"] is None
    assert (second["score"], second["error_kind"]) == (None, "environment")
    assert "the arm is stuck" in second["error"]
    assert (third["score"], third["error_kind"], third["error"]) == (0.0, "bad_answer", "no grip")


async def test_workers_of_the_kit_play_the_environment_and_ask_the_endpoint(site: Site) -> None:
    settings = {"environments": ("affine:sat",), "executors": "affine:*=jobqueue"}
    served = models_at_hand(site.settings(roster="baselines"))
    async with site.queue(), sample_jobs(Settings()) as jobs, site.workers(jobs), served as roster:
        result = await site.run(roster=roster, instances=2, **settings)
    rows = await site.rows()
    assert (result.samples, result.scored) == (6, 6)
    assert list(rows.filter(pl.col("model") == "baseline-solver@main")["score"]) == [1.0, 1.0]
    assert all(json.loads(text)[1][0] == "assistant" for text in rows["conversation"])


async def test_a_worker_asks_whom_its_roster_names_and_nobody_else(site: Site, tmp_path: Path) -> None:
    (tmp_path / "roster.yaml").write_text("models: [{name: other, base_url: 'http://127.0.0.1:1/v1'}]")
    given = {"environments": ("affine:sat",), "executors": "affine:*=jobqueue", "instances": 1}
    async with site.queue(), sample_jobs(Settings(roster=str(tmp_path / "roster.yaml"))) as jobs, site.workers(jobs):
        await site.run(roster=StaticRoster(MODELS[:1]), **given)
    (row,) = (await site.rows()).to_dicts()
    assert (row["score"], row["error_kind"]) == (None, "environment")
    assert "this worker's roster has no model 'm0@main'" in row["error"]


async def test_a_worker_with_a_roster_of_its_own_sends_the_seed_that_the_sample_records(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    request_of = client.request_body

    def body(model: Model, messages: Any, options: Mapping[str, Any], **how: Any) -> bytes:
        sent.append(options.get("seed"))
        return request_of(model, messages, options, **how)

    monkeypatch.setattr(client, "request_body", body)
    given = {"environments": ("affine:sat",), "executors": "affine:*=jobqueue", "instances": 1, "repeats": 2}
    async with site.queue(), models_at_hand(site.settings(roster="baselines")) as served:
        (model,) = [one for one in await served.load() if one.name == "baseline-solver"]
        (tmp_path / "roster.yaml").write_text(f"models: [{{name: baseline-solver, base_url: '{model.base_url}'}}]")
        async with sample_jobs(Settings(roster=str(tmp_path / "roster.yaml"))) as jobs, site.workers(jobs):
            await site.run(roster=StaticRoster((model,)), **given)
    seeds = (await site.rows())["request_seed"]
    assert len(set(seeds)) == 2
    assert set(sent) == set(seeds)


async def test_a_job_that_nobody_takes_is_taken_back_and_handed_out_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_workers, "_NOBODY_S", 0.3)
    async with site.queue() as queue:
        running = asyncio.create_task(site.run(instances=1, roster=StaticRoster(MODELS[:1])))
        await _until(lambda: _has(queue, JobState.DEAD))
        async with site.workers(_complete):
            result = await running
        (job,) = await _jobs(queue)
    assert (result.samples, result.scored, job.state, job.failures) == (1, 1, JobState.DONE, 0)
    assert "0" not in "".join(str(one.open_tasks) for one in site.seen).strip("0"), "it is open while it waits, too"


async def test_what_no_worker_takes_holds_up_nothing_else(site: Site) -> None:
    stop = asyncio.Event()
    async with site.queue() as queue, models_at_hand(site.settings(roster="baselines")) as roster:
        running = asyncio.create_task(site.run(stop=stop, roster=roster, **BOTH))
        await _until(lambda: _is(len(site.seen) > 0 and _done(site.seen[-1], "affine:sat") == 6))
        await _until(lambda: _has(queue, JobState.PENDING, LEAD))
        stop.set()
        await running
        left = await _jobs(queue, JobState.PENDING)
    assert left == []  # a run that is stopped takes back what nobody has begun


async def test_the_next_run_takes_up_what_was_left_pending_running_and_done(site: Site) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: HeldJob) -> None:
        begun.set()
        await go_on.wait()
        await _complete(job)

    stop = asyncio.Event()
    async with site.queue() as queue, site.workers(work, count=1):
        running = asyncio.create_task(site.run(stop=stop, instances=2))
        await begun.wait()
        await _until(lambda: _is(site.seen[-1].outside is not None and site.seen[-1].outside.working == 1))
        stop.set()
        assert (await running).open_tasks == 4
        go_on.set()  # done while nobody runs
        await _until(lambda: _has(queue, JobState.DONE))
        result = await site.run(instances=2)
        jobs = await _jobs(queue)
    assert (result.samples, result.open_tasks) == (4, 0)
    assert (await site.rows()).height == 4
    assert [job.epoch for job in jobs] == [1, 1, 1, 1]


async def test_a_queue_that_is_away_keeps_its_samples_waiting_and_no_others(site: Site) -> None:
    async with site.queue():
        pass
    async with models_at_hand(site.settings(roster="baselines")) as roster:
        running = asyncio.create_task(site.run(roster=roster, **BOTH))
        await _until(lambda: _is(len(site.seen) > 0 and _done(site.seen[-1], "affine:sat") == 6))
        await _until(lambda: _is(site.seen[-1].outside is not None and bool(site.seen[-1].outside.problem)))
        async with site.queue(), site.workers(_complete):
            result = await running
    assert (result.samples, result.open_tasks) == (12, 0)


async def test_a_queue_that_was_made_anew_gets_its_jobs_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_workers, "_NOBODY_S", 0.5)
    begun = asyncio.Event()

    async def hang(_: HeldJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with site.queue(), site.workers(hang):
        running = asyncio.create_task(site.run(instances=2))
        await begun.wait()
        await _until(lambda: _is(site.seen[-1].outside is not None and site.seen[-1].outside.working == 2))
    for file in site.folder.glob("jobqueue.db*"):
        file.unlink()
    async with site.queue(), site.workers(_complete):
        result = await running
    assert (result.samples, result.scored) == (4, 4)


async def test_jobs_of_a_model_that_leaves_the_roster_are_withdrawn(site: Site) -> None:
    class Leaving:
        count = 0

        async def load(self) -> Any:
            self.count += 1
            return await StaticRoster(MODELS if self.count == 1 else MODELS[1:]).load()

    stop = asyncio.Event()
    async with site.queue() as queue:
        given = {"rates": "*=20000", "roster_refresh_s": 0.5, "batch_flush_interval": 0.0}
        running = asyncio.create_task(site.run(roster=Leaving(), stop=stop, **given))
        await _until(lambda: _withdrawn(queue))
        stop.set()
        result = await running
    assert {pair.model for pair in result.status.pairs if pair.rate_per_day} == {"m1@main"}


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"executors": "robott:*=jobqueue", "environments": ("affine:sat",)}, UnknownEnvironmentError, "robott"),
        ({"environments": ("robot:arm", "no:such")}, UnknownEnvironmentError, "no:such"),
    ],
)
async def test_executors_of_nothing_are_refused(site: Site, changes: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        await site.run(instances=1, **changes)


def test_who_plays_an_environment_is_a_setting_or_its_own_word() -> None:
    settings = Settings(environments=("robot:arm", "affine:sat"), executors="robot:*=jobqueue:{model}")
    found = sampled_environments(settings)
    assert outside_executors(settings, found) == {"robot:arm": "jobqueue:{model}"}
    assert outside_executors(Settings(executors="robot:arm=local"), found) == {}
    assert outside_executors(Settings(), found) == {"robot:arm": "jobqueue"}
    judged = sampled_environments(
        Settings(environments=("headgate:explain",), judge_model="j", judge_url="http://j/v1")
    )
    with pytest.raises(InvalidSettingError, match="needs a judge"):
        outside_executors(Settings(executors="*=jobqueue"), judged)
    with pytest.raises(ValueError, match="executors are written"):
        Settings(executors="robot")
    with pytest.raises(ValueError, match="pattern"):
        Settings(executors="robot=slurm")


async def _is(condition: bool) -> bool:
    return condition


async def _has(queue: JobQueueClient, state: JobState, count: int = 1) -> bool:
    return len(await _jobs(queue, state)) >= count


async def _withdrawn(queue: JobQueueClient) -> bool:
    dead = await _jobs(queue, JobState.DEAD)
    return any(job.team == "m0@main" and "its model has left" in job.last_error for job in dead)


def _done(status: CampaignStatus, environment: str) -> int:
    return sum(pair.done for pair in status.pairs if pair.environment == environment)
