"""Budgets against a real endpoint, by its own count of tokens, over restarts of the process's parts."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.config import Settings
from headgate.core import Model
from headgate.core.status import CampaignStatus
from headgate.run import RunResult, run_campaign, run_judged
from headgate.run.arena import ArenaRequest, run_arena
from headgate.sampling import StaticRoster
from headgate.storage import open_store
from tests.run.budgets.meter import Meter, metered

HEADER = (("headgate_task_header", True),)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Any]:
    return {"store": str(tmp_path / "samples"), "journal": tmp_path / "journal"}


def answering(meter: Meter, kind: str, **fields: Any) -> StaticRoster:
    return StaticRoster([Model(f"baseline-{kind}", base_url=meter.base_url, options=HEADER, **fields)])


async def until(
    is_over: Callable[[CampaignStatus], bool], roster: StaticRoster, instances: int, settings: Settings
) -> RunResult:
    """Run a matrix until its status says so, or it is done."""
    stop = asyncio.Event()

    async def look(status: CampaignStatus) -> None:
        if is_over(status):
            stop.set()

    return await run_campaign(settings, roster=roster, instances=instances, stop=stop, on_status=look, every_s=0.02)


def is_paused(status: CampaignStatus) -> bool:
    return any(model.is_paused for model in status.models)


async def scores(places: dict[str, Any]) -> list[tuple[float | None, str | None]]:
    store = open_store(places["store"])
    try:
        scan = await store.scan(columns=["task_id", "score", "error_kind"])
    finally:
        store.close()
    assert scan.duplicates == 0
    return scan.frame.select("score", "error_kind").rows()


async def test_the_endpoint_sees_no_more_than_the_day_allows_also_after_a_restart(places) -> None:
    limited = Settings(**places, environments=("affine:sat",), daily_tokens=20_000)
    async with metered() as meter:
        roster = answering(meter, "solver", max_parallel=4)
        first = await until(is_paused, roster, 60, limited)
        seen = meter.tokens("baseline-solver")
        assert 10_000 < seen <= 20_000, "and most of what it allows"
        again = await until(is_paused, roster, 60, limited)
        assert meter.tokens("baseline-solver") <= 20_000
        (model,) = again.status.models
        assert model.pause_reason is not None
        assert " of 20 000 tokens in 24 h, resumes at " in model.pause_reason
        rest = await run_campaign(limited.model_copy(update={"daily_tokens": None}), roster=roster, instances=60)
    assert first.samples + again.samples + rest.samples == 60
    assert await scores(places) == [(1.0, None)] * 60


@pytest.mark.long
async def test_processes_side_by_side_spend_one_days_budget_between_them(places, tmp_path: Path) -> None:
    async with metered() as meter:
        roster = tmp_path / "roster.yaml"
        model = {"name": "baseline-solver", "base_url": meter.base_url, "daily_tokens": 20_000, "max_parallel": 8}
        roster.write_text(yaml.safe_dump({"models": [model | {"options": {"headgate_task_header": True}}]}))
        command = [sys.executable, "-m", "headgate.cli", "run", "--roster", str(roster), "--duration", "12"]
        command += ["--instances", "60"]
        command += ["--store", places["store"], "--journal", str(places["journal"]), "--set", "drain_timeout_s=5"]
        command += ["--environment"]
        running = [
            await asyncio.create_subprocess_exec(*command, name, stderr=asyncio.subprocess.PIPE)
            for name in ("affine:sat", "affine:sat-hard", "agentgym:babyai")
        ]
        for process in running:
            _, said = await process.communicate()
            assert process.returncode in (0, 4), (
                said.decode()
            )  # 4: the others have spent the day before its first sample
        assert 17_000 < meter.tokens("baseline-solver") <= 20_000
    # A game of several rounds takes a request for each; one that waits for the next day at the end has no score yet.
    assert 0 < len(await scores(places)) <= len({one.task for one in meter.passed})


async def test_no_sample_takes_more_than_its_budget_by_the_endpoints_count(places) -> None:
    settings = Settings(**places, environments=("agentgym:babyai",), sample_tokens="agentgym:babyai=2500")
    async with metered() as meter:
        result = await run_campaign(settings, roster=answering(meter, "random"), instances=12)
        taken: dict[str, int] = defaultdict(int)
        for one in meter.passed:
            taken[one.task] += one.tokens
            assert one.max_tokens is not None
    assert result.samples == 12
    assert max(taken.values()) <= 2_500
    found = await scores(places)
    assert (0.0, "budget") in found
    assert all(score is not None for score, _ in found)


async def test_a_budget_that_holds_no_first_request_makes_no_score(places) -> None:
    settings = Settings(**places, environments=("affine:sat",), sample_tokens="40", early_stop=False)
    async with metered() as meter:
        await run_campaign(settings, roster=answering(meter, "solver"), instances=2)
        assert meter.passed == []
    assert await scores(places) == [(None, "bad_request")] * 2


async def test_a_judge_keeps_within_its_day_and_what_it_could_not_judge_is_judged_later(places) -> None:
    async with metered() as meter:
        settings = Settings(
            **places,
            judge_model="baseline-judge",
            judge_url=meter.base_url,
            judge_daily_tokens=6_000,
            daily_tokens=10**9,
        )
        stop, told = asyncio.Event(), 0

        async def look(status: CampaignStatus) -> None:
            nonlocal told
            is_still = not status.workers.active and status.unjudged > 0 and meter.tokens("baseline-judge") == told
            told = meter.tokens("baseline-judge")
            if is_still and told > 3_000:
                stop.set()

        roster = answering(meter, "solver")
        first = await run_judged(
            settings.model_copy(update={"drain_timeout_s": 0.2}),
            instances=20,
            roster=roster,
            stop=stop,
            on_status=look,
            every_s=0.2,
        )
        assert 3_000 < meter.tokens("baseline-judge") <= 6_000
        assert 0 < first.scored == first.samples < 20
        rest = await run_judged(settings.model_copy(update={"judge_daily_tokens": None}), instances=20, roster=roster)
    assert first.samples + rest.samples == 20
    assert {score for score, _ in await scores(places)} == {1.0}


async def test_comparisons_ask_the_judge_alone_whatever_day_the_models_had(places) -> None:
    async with metered() as meter:
        settings = Settings(**places, judge_model="baseline-judge", judge_url=meter.base_url)
        for kind in ("solver", "random"):
            await run_judged(settings, instances=3, roster=answering(meter, kind))
        spent = settings.model_copy(update={"daily_tokens": 1, "daily_requests": 1})
        first = await run_arena(spent, ArenaRequest(comparisons=2))
        second = await run_arena(spent, ArenaRequest())
    assert (len(first.comparisons), len(second.comparisons), second.unjudged) == (2, 3, 0)
