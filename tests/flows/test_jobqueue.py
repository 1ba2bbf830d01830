"""The flows of the job queue, run in this process against a real Prefect server and a real job queue."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import polars as pl
import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

from blocks import JobQueueServer, SampleStore
from flows.jobqueue import drain_jobqueue, generate_jobs, requeue_dead_jobs
from headgate.cli import main
from headgate.core import errors
from headgate.jobqueue import ResourceSpec
from headgate.jobqueue.policy import PolicyServer, ScriptedPolicy
from headgate.jobqueue.worker import ForbiddenError, QueueUnreachableError
from headgate.net.tokens import Scope
from headgate.storage import open_store
from tests.flows.api import artifacts_of, newest_run
from tests.flows.queue_site import COMMAND, SLOW, QueueSite, challenge, queue_site, spec

DRAIN = "drain job queue, campaign jobqueue"


@pytest.fixture
async def queue(prefect: object, tmp_path: Path) -> AsyncIterator[QueueSite]:
    async with queue_site(tmp_path) as site:
        yield site


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "samples"


async def _stored(store: Path) -> pl.DataFrame:
    opened = open_store(str(store))
    try:
        scan = await opened.scan()
    finally:
        opened.close()
    assert (scan.duplicates, scan.problems) == (0, ())
    return scan.frame.sort("model", "environment", "index")


async def _drain(queue: QueueSite, store: Path, **more: Any) -> Any:
    given = {"jobqueue": queue.block, "poll_s": 0.05, "settings": {"store": str(store)}} | more
    return await drain_jobqueue(**given)


async def test_results_of_outside_workers_become_samples_and_a_table(queue: QueueSite, store: Path) -> None:
    await queue.submit(*(spec(number) for number in range(3)), spec(0, task="Pick up"), spec(1, "Team B"))
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work_off(5))
        counts = await _drain(queue, store)
    assert (counts["done"], counts["dead"], counts["left"], counts["stored"]) == (5, 0, 0, 5)
    rows = await _stored(store)
    assert list(rows.select("model", "environment").unique(maintain_order=True).iter_rows()) == [
        ("Team+20B@main", "radio"),
        ("team_a@main", "Pick+20up"),
        ("team_a@main", "radio"),
    ]
    published = await artifacts_of((await newest_run(DRAIN)).id)
    table = {(row["team"], row["task"]): row for row in published["jobs-jobqueue-main"]}
    assert (table["team_a", "radio"]["done"], table["team_a", "radio"]["mean"]) == ("3", "0.500")
    assert table["Team B", "radio"]["95 %"] == "0.000–1.000"
    assert published["progress-jobqueue-main"] == 100.0


async def test_a_small_queue_is_drained_by_workers_of_the_run_and_a_repeated_run_stores_nothing(
    queue: QueueSite, store: Path
) -> None:
    await queue.submit(*(spec(number) for number in range(4)))
    counts = await _drain(queue, store, workers=2, command=COMMAND)
    assert (counts["stored"], counts["is_drained"]) == (4, True)
    assert list((await _stored(store))["score"]) == [0.0, 0.1, 0.2, 0.3]
    again = await _drain(queue, store)
    assert (again["stored"], again["known"]) == (0, 4)
    await queue.submit(spec(9))
    more = await _drain(queue, store, workers=1, command=COMMAND)
    assert (more["stored"], (await _stored(store)).height) == (1, 5)


async def test_generated_jobs_are_evaluated_against_a_policy_server_and_shown_by_summary_and_report(
    queue: QueueSite, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with PolicyServer(ScriptedPolicy()) as policy:
        site = challenge(tmp_path, policy.port)
        dry = await generate_jobs(**site, jobqueue=queue.block, dry_run=True)
        assert (dry["jobs"], dry["added"]) == (1, None)
        counts = await generate_jobs(**site, jobqueue=queue.block, output_dir=str(tmp_path / "made"))
        assert (counts["jobs"], counts["added"], counts["skipped"], counts["unserved"]) == (1, 1, 2, 0)
        assert len(json.loads((tmp_path / "made/jobs.json").read_text())) == 1
        assert (await generate_jobs(**site, jobqueue=queue.block))["existing"] == 1
        published = await artifacts_of((await newest_run(f"generate jobs from {site['submissions_dir']}")).id)
        assert published["generated-jobs"] == [
            {"team": "robots", "task": "grid-5x5", "jobs": "1", "skipped": ""},
            {"team": "robots", "task": "grid-7x7", "jobs": "0", "skipped": "2 no server of the team takes the task"},
        ]
        command = [sys.executable, "-m", "headgate.cli", "jobqueue", "evaluate"]
        drained = await _drain(queue, store, workers=1, command=command)
    assert (drained["done"], drained["dead"], drained["stored"]) == (1, 0, 1)
    rows = await _stored(store)
    assert set(rows["model"]) == {"robots@main"}
    assert all("server robots/0" in why for why in rows["why"])
    assert all(turns > 0 for turns in rows["turns"])
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["summary", "--store", str(store), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [(pair["model"], pair["environment"], pair["samples"]) for pair in summary] == [
        ("robots@main", "grid-5x5", 1)
    ]
    written = ["report", "--store", str(store), "--output", str(tmp_path / "report.html")]
    assert await asyncio.to_thread(main, written) == 0
    assert "grid-5x5" in (tmp_path / "report.html").read_text()


async def test_a_cancelled_run_gives_jobs_back_and_the_next_one_goes_on(queue: QueueSite, store: Path) -> None:
    await queue.submit(*(spec(number) for number in range(4)))
    await queue.work_off(2)

    async def cancel() -> None:
        await queue.until_in_progress(2)
        run = await newest_run(DRAIN)
        async with get_client() as client:
            await client.set_flow_run_state(run.id, Cancelling(), force=True)

    async with asyncio.TaskGroup() as group:
        group.create_task(cancel())
        state = await drain_jobqueue(
            jobqueue=queue.block,
            poll_s=0.05,
            workers=2,
            command=SLOW,
            settings={"store": str(store)},
            return_state=True,
        )
    assert state.is_cancelled()
    assert "Cancelled and drained: stopped by request: 2 of 4 jobs done" in (state.message or "")
    assert (await _stored(store)).height == 2
    async with queue.client() as client:
        left = [job async for job in client.all_jobs(state="pending")]
    assert [job.failures for job in left] == [0, 0]
    counts = await _drain(queue, store, workers=2, command=COMMAND)
    assert (counts["stored"], counts["known"]) == (2, 2)
    assert (await _stored(store)).height == 4


async def test_dead_jobs_fail_the_run_unless_it_is_told_otherwise_and_can_be_tried_again(
    queue: QueueSite, store: Path
) -> None:
    broken = '{"fails": true, "result": {"q_score": 1}}'
    await queue.submit(spec(1), spec(2, payload=broken, max_attempts=1), spec(3, "b", payload=broken, max_attempts=1))
    state = await drain_jobqueue(
        jobqueue=queue.block,
        poll_s=0.05,
        workers=1,
        command=COMMAND,
        settings={"store": str(store)},
        return_state=True,
    )
    assert state.is_failed()
    assert "no job is left: 1 of 3 jobs done; 1 sample stored; 2 dead" in (state.message or "")
    counts = await _drain(queue, store, fail_on_dead=False)
    assert (counts["dead"], counts["known"]) == (2, 1)

    await queue.submit(spec(4, "b"))
    async with queue.client() as client:
        await client.withdraw("b.radio.4", "late")
    dry = await requeue_dead_jobs(queue.block, error_contains="SIMULATOR broke", dry_run=True)
    assert dry == {"matching": 2, "requeued": []}
    none = await requeue_dead_jobs(queue.block, error_contains="something else")
    assert none == {"matching": 0, "requeued": []}
    one = await requeue_dead_jobs(queue.block, team="b", task="radio")
    assert one == {"matching": 1, "requeued": ["b.radio.3"]}
    published = await artifacts_of((await newest_run("requeue dead jobs")).id)
    (row,) = published["requeued-jobs"]
    assert (row["job"], row["team"]) == ("b.radio.3", "b")
    assert "the simulator broke" in row["error"]


async def test_a_result_without_a_score_is_a_sample_without_one(queue: QueueSite, store: Path) -> None:
    await queue.submit(spec(1), spec(2))
    await queue.work_off(1, {"success": True})
    await queue.work_off(1, {"scores": {"mean": 0.25}})
    counts = await _drain(queue, store, score_field="scores.mean")
    assert (counts["stored"], counts["unscored"]) == (2, 1)
    rows = (await _stored(store)).sort("score")
    assert list(rows["error_kind"]) == ["environment", None]
    assert rows["error"][0] == "the result has no scores.mean"


async def test_scores_of_workers_that_hand_in_none_are_read_from_their_files(
    queue: QueueSite, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "results/team_a/metrics").mkdir(parents=True)
    (tmp_path / "results/team_a/metrics/radio_1.json").write_text('{"q_score": {"final": 0.25}}')
    async with queue.client() as client:
        await client.register([ResourceSpec("team_a", "127.0.0.1", 9, body='{"host": "127.0.0.1", "port": 9}')])
    await queue.submit(spec(1, pool="team_a", resource_type="team_a"))
    async with httpx.AsyncClient(base_url=queue.url, trust_env=False) as seed_worker:
        await seed_worker.get("/job", params={"worker": "w"})
        (await seed_worker.post("/done/team_a.radio.1", params={"worker": "w"})).raise_for_status()
    counts = await _drain(queue, store, results_dir=str(tmp_path / "results"))
    assert (counts["stored"], counts["unscored"]) == (1, 0)
    assert list((await _stored(store))["score"]) == [0.25]


async def test_a_run_ends_when_its_time_is_over(queue: QueueSite, store: Path) -> None:
    await queue.submit(spec(1, pool="nobody"))
    counts = await _drain(queue, store, hours=0.0001)
    assert (counts["left"], counts["unserved"], counts["stopped_by"]) == (1, 1, "its time is over")


async def test_samples_go_to_the_store_of_a_block(queue: QueueSite, store: Path) -> None:
    name = f"jobs-{uuid4().hex[:8]}"
    await SampleStore(url=str(store)).asave(name)
    await queue.submit(spec(1))
    await queue.work_off(1)
    await drain_jobqueue(jobqueue=queue.block, store=name)
    assert (await _stored(store)).height == 1


async def test_what_cannot_be_used_is_refused_before_anything_is_asked(prefect: object, tmp_path: Path) -> None:
    nowhere = f"nowhere-{uuid4().hex[:8]}"
    await JobQueueServer(url="http://127.0.0.1:9", patience_s=0.0).asave(nowhere)
    with pytest.raises(errors.InvalidInputError, match="headgate-job-queue-server/nobody cannot be loaded"):
        await drain_jobqueue("nobody")
    with pytest.raises(errors.InvalidInputError, match="no command to run for 2 workers"):
        await drain_jobqueue(nowhere, workers=2)
    with pytest.raises(errors.InvalidInputError, match="has no workers to run it"):
        await drain_jobqueue(nowhere, command=["true"])
    with pytest.raises(QueueUnreachableError, match="does not answer"):
        await drain_jobqueue(nowhere, settings={"store": str(tmp_path / "s")})
    with pytest.raises(errors.InvalidInputError, match="neither sent nor written"):
        await generate_jobs(send=False)
    with pytest.raises(errors.InvalidInputError, match="folder of submissions"):
        await generate_jobs(submissions_dir=str(tmp_path / "none"), send=False, dry_run=True)


async def test_without_a_block_the_variables_of_the_worker_name_the_queue(
    queue: QueueSite, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_JOBQUEUE_URL", queue.url)
    await queue.submit(spec(1))
    await queue.work_off(1)
    counts = await drain_jobqueue(settings={"store": str(store)})
    assert counts["stored"] == 1


async def test_a_run_sees_and_may_do_what_its_token_says(queue: QueueSite, store: Path) -> None:
    reader = await queue.as_holder_of(Scope.READ, teams=["b"])
    admin = await queue.as_holder_of(Scope.ADMIN)
    await admin.submit(spec(1), spec(2, "b"))
    with pytest.raises(ForbiddenError, match="claim"):
        await _drain(reader, store, workers=1, command=COMMAND)
    with pytest.raises(ForbiddenError, match="admin"):
        await generate_jobs(**challenge(store.parent, 8000), jobqueue=reader.block)
    await admin.work_off(2)
    counts = await _drain(reader, store)
    assert (counts["done"], counts["stored"]) == (1, 1)
    assert list((await _stored(store))["model"]) == ["b@main"]
    assert (await _drain(admin, store))["stored"] == 1
