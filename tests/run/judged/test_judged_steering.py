"""Steering runs with a judge: a pause of the judge keeps answers, a pause of a model leaves the others their turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headgate.core import TaskId
from headgate.run import Run
from tests.run.judged.judged_world import JudgedWorld, Providers, model


def test_a_paused_judge_is_asked_nothing_and_answers_wait_for_it(tmp_path: Path) -> None:
    providers, world = Providers(), JudgedWorld(tmp_path)
    seen: list[int] = []

    async def during(run: Run) -> None:
        await asyncio.sleep(5)
        await run.steering.steer({"verb": "pause", "model": "judge:coverage@main"}, "ops")
        await asyncio.sleep(5)
        seen.append(providers.count("judge"))
        await asyncio.sleep(60)
        seen.append(providers.count("judge"))
        assert run.status().unjudged > 0
        waits = [await run.inquiry.explain(task.task_id) for _, task in run.inquiry.open_tasks()]
        assert "model judge:coverage@main is paused by ops" in " ".join(why.reason for why in waits)
        await run.steering.steer({"verb": "resume", "model": "judge:coverage"}, "ops")

    result = world.go([model("solver")], providers, instances=12, during=during)
    assert seen[0] == seen[1]
    assert result.scored == 12


def test_a_paused_model_lets_the_others_pass_and_ends_its_answers(tmp_path: Path) -> None:
    providers, world = Providers(), JudgedWorld(tmp_path)
    seen: list[tuple[int, int]] = []

    async def during(run: Run) -> None:
        await asyncio.sleep(5)
        await run.steering.steer({"verb": "pause", "model": "solver", "environment": "headgate:explain"}, "ops")
        await asyncio.sleep(5)
        seen.append((providers.count("solver"), providers.count("random")))
        await asyncio.sleep(100)
        seen.append((providers.count("solver"), providers.count("random")))
        (first, *_) = (TaskId(task.task_id) for state, task in run.inquiry.open_tasks() if task.model == "solver@main")
        assert (await run.inquiry.explain(first)).gate == "paused"
        await run.steering.steer({"verb": "undo", "revision": 1}, "ops")

    result = world.go([model("solver"), model("random")], providers, instances=30, max_unjudged=8, during=during)
    assert seen[0][0] == seen[1][0]
    assert seen[1][1] == 30
    assert result.scored == 60
