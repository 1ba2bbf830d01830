"""The flow with a judge, run in this process against a real server."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

from blocks import ModelEndpoint, ReportStore
from flows.judging import evaluate_with_judge
from flows.sampling import sample_environment
from headgate.core import errors
from headgate.models import FaultPlan, serve
from tests.flows.api import artifacts_of, newest_run
from tests.flows.places import Places

EXPLAIN = "headgate:explain"


async def _judge(base_url: str, served_name: str = "baseline-judge") -> str:
    name = f"judge-{uuid4().hex[:8]}"
    await ModelEndpoint(base_url=base_url, served_name=served_name, max_parallel=4).asave(name)
    return name


async def test_scores_with_their_agreement_are_artifacts_and_nothing_is_judged_twice(
    prefect: object, places: Places, baselines: str
) -> None:
    judge = await _judge(baselines)

    async def run(instances: int) -> dict[str, Any]:
        return await evaluate_with_judge(instances, judge, judgements=2, settings=places.settings())

    counts = await run(3)
    assert (counts["samples"], counts["scored"], counts["judge_errors"]) == (6, 6, 0)
    published = await artifacts_of((await newest_run("judge judged: 3 instances")).id)
    rows = {row["model"]: row for row in published["scores-judge-judged"]}
    assert (rows["solver@main"]["mean"], rows["solver@main"]["agreement"]) == ("1.000", "1.00")
    assert rows["random@main"]["mean"] == "0.000"
    assert "Judged by baseline-judge" in published["judged-judged"]
    assert "| solver@main | 3 | 3 | 1.000 |" in published["judged-judged"]
    assert published["progress-judge-judged"] == 100.0
    assert (await run(3))["samples"] == 0
    assert (await run(4))["samples"] == 2
    stored = await places.stored()
    assert sorted(stored.filter(stored["model"] == "solver@main")["sequence"]) == [0, 1, 2, 3]


async def test_what_cannot_be_judged_is_refused_before_anything_is_asked(
    prefect: object, places: Places, baselines: str
) -> None:
    judge = await _judge(baselines)
    with pytest.raises(errors.InvalidSettingError, match="'affine:sat' scores answers itself"):
        await evaluate_with_judge(1, judge, environments=["affine:sat"], settings=places.settings())
    with pytest.raises(errors.InvalidInputError, match="headgate-model-endpoint/nobody cannot be loaded"):
        await evaluate_with_judge(1, "nobody", settings=places.settings())
    with pytest.raises(errors.InvalidSettingError, match="names no model"):
        await evaluate_with_judge(1, await _judge(baselines, served_name=""), settings=places.settings())
    with pytest.raises(errors.InvalidSettingError, match="'judge_model' is empty"):
        await evaluate_with_judge(1, settings=places.settings())
    with pytest.raises(errors.InvalidSettingError, match="given twice"):
        await evaluate_with_judge(1, judge, judgements=2, settings=places.settings(judgements=3))


@pytest.mark.long
async def test_a_cancelled_run_drains_and_the_next_one_takes_what_is_left(
    prefect: object, places: Places, baselines: str
) -> None:
    async with serve(FaultPlan.parse("slow:mean_s=1.0")) as slow:
        judge = await _judge(slow.base_url)

        async def cancel() -> None:
            while not list((places.folder / "journal").glob("**/journal.db")):  # noqa: ASYNC110 - the flow makes it
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            run = await newest_run("judge judged: 40 instances")
            async with get_client() as client:
                await client.set_flow_run_state(run.id, Cancelling(), force=True)

        async with asyncio.TaskGroup() as group:
            group.create_task(cancel())
            state = await evaluate_with_judge(40, judge, settings=places.settings(), return_state=True)
        assert state.is_cancelled()
        assert state.message is not None
        assert state.message.startswith("Cancelled and drained")
    before = (await places.stored()).height
    assert 0 < before < 80
    judge = await _judge(baselines)
    counts = await evaluate_with_judge(40, judge, settings=places.settings())
    assert counts["samples"] == 80 - before
    stored = await places.stored()
    assert sorted(stored.filter(stored["model"] == "solver@main")["sequence"]) == list(range(40))


async def test_a_judge_that_always_fails_ends_the_run_as_failed_and_leaves_a_trace(
    prefect: object, places: Places
) -> None:
    await ReportStore(url=str(places.folder / "reports")).asave("judge-traces", overwrite=True)
    async with serve(FaultPlan.parse("key:key=another-one")) as locked:
        judge = await _judge(locked.base_url)
        with pytest.raises(errors.SamplesKeepFailingError, match="10 of the last 10 samples failed"):
            await evaluate_with_judge(20, judge, reports="judge-traces", settings=places.settings())
    run = await newest_run("judge judged: 20 instances")
    published = await artifacts_of(run.id)
    assert all(int(row["judge errors"]) >= 5 for row in published["scores-judge-judged"])
    assert "trace-judge-judged" in published
    assert list((places.folder / "reports").glob("**/trace.json.gz"))


async def test_a_judged_environment_is_sampled_by_its_rate_when_a_block_names_the_judge(
    prefect: object, places: Places, baselines: str
) -> None:
    settings = places.settings(daily_rate_per_env=86_400.0)
    counts = await sample_environment(EXPLAIN, 3.0, settings=settings, judge=await _judge(baselines))
    assert counts["samples"] >= 2
    assert counts["scored"] == counts["samples"]
    with pytest.raises(errors.JudgeNeededError, match="needs a judge"):
        await sample_environment(EXPLAIN, 3.0, settings=settings)
