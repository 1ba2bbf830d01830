"""Runs with a judge against a real endpoint, and processes that are killed while they judge."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headgate.config import Settings
from headgate.core import errors
from headgate.models import FaultPlan, serve
from headgate.run import RunResult, judge_of, run_judged
from headgate.storage import open_store

PROGRAM = (sys.executable, "-m", "headgate.cli")


@pytest.fixture
def places(tmp_path: Path, roster_file: Path) -> dict[str, Any]:
    return {"roster": str(roster_file), "store": str(tmp_path / "samples"), "journal": tmp_path / "journal"}


def options(places: dict[str, Any]) -> list[str]:
    """Return the places as a command line has them."""
    return [word for name in ("roster", "store", "journal") for word in (f"--{name}", str(places[name]))]


async def judged(places: dict[str, Any], judge_url: str, instances: int, **more: Any) -> RunResult:
    settings = Settings(**places, judge_model="baseline-judge", judge_url=judge_url, **more)
    return await run_judged(settings, instances=instances)


async def stored(places: dict[str, Any]) -> list[tuple[str, int, float | None]]:
    store = open_store(places["store"])
    try:
        scan = await store.scan(columns=["task_id", "model", "sequence", "score"])
    finally:
        store.close()
    assert scan.duplicates == 0
    return sorted(scan.frame.select("model", "sequence", "score").iter_rows(), key=str)


async def test_baselines_judged_over_http_score_as_their_answers_deserve(places, baselines) -> None:
    result = await judged(places, baselines, 4, judgements=2)
    assert (result.samples, result.scored, result.stored) == (8, 8, 8)
    means = {pair.model: pair.mean_score for pair in result.status.judged}
    assert means == {"solver@main": 1.0, "random@main": 0.0}
    again = await judged(places, baselines, 4, judgements=2)
    assert (again.samples, again.status.judged) == (0, result.status.judged)


async def test_answers_and_judgements_in_batches_score_the_same(places, baselines) -> None:
    quick = {"lane_batch_wait_s": 0.1, "lane_poll_s": 0.02}
    result = await judged(places, baselines, 4, judgements=2, lanes="batch", judge_lane="batch", **quick)
    assert (result.samples, result.scored, result.stored) == (8, 8, 8)
    assert {pair.model: pair.mean_score for pair in result.status.judged} == {"solver@main": 1.0, "random@main": 0.0}
    store = open_store(places["store"])
    lanes = (await store.scan(columns=["task_id", "lane"])).frame["lane"].unique().to_list()
    store.close()
    assert lanes == ["batch"]
    async with aiohttp.ClientSession() as http, http.get(f"{baselines}/batches") as listed:
        made = (await listed.json())["data"]
    assert sum(batch["request_counts"]["completed"] for batch in made) == 8 + 16


async def test_a_judge_that_answers_429_at_first_loses_nothing(places) -> None:
    async with serve(FaultPlan.parse("error:status=429,until_s=0.5,retry_after_s=0.2")) as rude:
        result = await judged(places, rude.base_url, 5)
    assert (result.samples, result.scored) == (10, 10)


async def test_what_a_judge_could_not_judge_is_taken_again_by_the_next_run(places, baselines) -> None:
    async with serve(FaultPlan.parse("key:key=another-one")) as locked:
        first = await judged(places, locked.base_url, 3, early_stop=False)
    assert (first.samples, first.scored) == (6, 0)
    assert all(pair.judge_errors == 3 for pair in first.status.judged)
    second = await judged(places, baselines, 3)
    assert (second.samples, second.scored) == (6, 6)
    assert sum(score is None for _, _, score in await stored(places)) == 6


@pytest.mark.long
async def test_a_killed_run_loses_no_sample_and_doubles_none(places, baselines) -> None:
    async with serve(FaultPlan.parse("slow:mean_s=0.3")) as slow:
        command = [*PROGRAM, "judge", "--instances", "30", "--json", *options(places)]
        command += ["--judge-model", "baseline-judge", "--judge-url", slow.base_url, "--judge-parallel", "4"]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        environ |= {"HEADGATE_SINK_MAX_WAIT": "0.5", "HEADGATE_SINK_BATCH_SIZE": "4"}
        process = await asyncio.create_subprocess_exec(
            *command, env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(60):
            while not await stored(places):  # noqa: ASYNC110 - another process stores them
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    before = len(await stored(places))
    assert 0 < before < 60
    result = await judged(places, baselines, 30)
    assert result.samples <= 60 - before
    expected = [
        (f"{name}@main", number, score) for name, score in (("solver", 1.0), ("random", 0.0)) for number in range(30)
    ]
    assert await stored(places) == sorted(expected, key=str)


async def test_the_command_prints_what_came_of_it_and_ends_with_4_when_the_judge_is_locked(places) -> None:
    async with serve(FaultPlan.parse("key:key=another-one")) as locked:
        words = ["judge", "--instances", "10", "--json", "--judge-model", "baseline-judge"]
        words += ["--judge-url", locked.base_url, *options(places)]
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        out, _ = await process.communicate()
    printed = json.loads(out)
    assert (process.returncode, printed["stopped_early"], printed["scored"]) == (4, True, 0)
    assert printed["samples"] == sum(pair["judge_errors"] for pair in printed["pairs"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge_model": ""}, "'judge_model' is empty"),
        ({"judge_url": ""}, "'judge_url' is empty"),
        ({"environments": ("affine:sat",)}, "'affine:sat' scores answers itself"),
        ({"judge_url": "http://user:secret@judge.example/v1"}, "'judge_url' must not contain a user or password"),
    ],
)
async def test_a_run_that_cannot_judge_is_refused_before_it_begins(places, baselines, changes, message) -> None:
    settings = Settings(**{**places, "judge_model": "baseline-judge", "judge_url": baselines, **changes})
    with pytest.raises(errors.InvalidSettingError, match=message):
        await run_judged(settings, instances=1)
    assert not places["journal"].exists()


def test_a_judge_s_options_are_json_and_its_key_is_a_secret() -> None:
    judge = judge_of(
        Settings(
            judge_model="vendor/large",
            judge_url="https://example.com/v1",
            judge_key="sk-very-secret-1",
            judge_options='{"temperature": 0}',
        )
    )
    assert (judge.key, judge.request_name) == ("judge:vendor/large@main", "vendor/large")
    assert judge.options == (("temperature", 0),)
    assert "sk-very-secret-1" not in repr(judge)
    with pytest.raises(ValueError, match="judge_options must be a JSON object"):
        Settings(judge_options="{temperature: 0}")


async def test_a_rubric_judges_environments_that_score_themselves_apart_from_their_own_samples(
    places, baselines, tmp_path
) -> None:
    (tmp_path / "rubric.yaml").write_text("name: one\ncriteria: ['says \"1\"', {text: 'says \"zebra\"', points: 3}]\n")
    rubric = {"environments": ["affine:sat"], "rubric": str(tmp_path / "rubric.yaml")}
    result = await judged(places, baselines, 3, judgements=2, **rubric)
    assert (result.samples, result.scored) == (6, 6)
    assert {pair.environment.rpartition("-")[0] for pair in result.status.judged} == {"affine:sat/rubric/one"}
    assert all(pair.mean_score is not None and pair.mean_score <= 0.25 for pair in result.status.judged)
    ((environment, agreement),) = result.agreements
    assert environment.startswith("affine:sat/rubric/one-")
    assert (agreement.answers, agreement.judgements, agreement.spread) == (6, 12, 0.0)
    again = await judged(places, baselines, 3, judgements=2, **rubric)
    assert (again.samples, again.agreements) == (0, result.agreements)
