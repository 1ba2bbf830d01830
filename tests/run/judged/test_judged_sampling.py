"""Judged environments sampled by rates, beside environments that score answers themselves."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ChatReply, ErrorKind, Message, Model
from headgate.core.events import TaskOpened
from headgate.models import TaskReference
from headgate.run import RunResult, sampled_environments
from headgate.simulation import free_environments
from headgate.storage import Journal
from tests.run.judged.judged_world import EXPLAIN, JudgedWorld, Providers, always, model, storm

SCORED = "affine:sat"
EVERY_30_S: dict[str, Any] = {
    "rates": {EXPLAIN: 2_880.0, SCORED: 2_880.0},
    "low_sample_multiplier": 1.0,
    "batch_flush_interval": 0.0,
}


class Both(Providers):
    """Answers the judged environment as a baseline does, and the other one in any way."""

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        refuses = model.name in self.scripts
        if not refuses and task_header is not None and TaskReference.parse(task_header).environment == SCORED:
            return ChatReply("1", prompt_tokens=1, completion_tokens=1)
        return await super().chat(model, messages, task_header=task_header)


def go(world: JudgedWorld, providers: Providers, *names: str, for_s: float = 1_800.0, **more: Any) -> RunResult:
    environments = free_environments({SCORED: 2_880.0})
    models = [model(name) for name in names or ("solver",)]  # type: ignore[arg-type]
    return world.go(models, providers, environments=environments, for_s=for_s, **EVERY_30_S | more)


def counts(world: JudgedWorld) -> Counter[str]:
    return Counter(sample.environment for sample in world.store.samples if sample.is_scored)


@pytest.fixture
def world(tmp_path: Path) -> JudgedWorld:
    return JudgedWorld(tmp_path)


def test_judged_and_scored_environments_are_sampled_at_their_rates_side_by_side(world: JudgedWorld) -> None:
    result = go(world, Both(), judgements=2)
    assert counts(world) == pytest.approx({EXPLAIN: 60, SCORED: 60}, abs=2)
    assert result.stopped_by == "the window is over"
    assert all(sample.why.startswith("2 of 2") for sample in world.samples("solver") if sample.environment == EXPLAIN)


def test_a_judge_that_stands_still_holds_no_scored_sampling_up_and_piles_nothing_up(world: JudgedWorld) -> None:
    go(
        world,
        Both(judge=storm(0.0, 1e9)),
        max_unjudged=5,
        drain_timeout_s=1,
        queue_pause_threshold=8,
        queue_resume_threshold=4,
        queue_warning_threshold=6,
    )
    assert counts(world) == pytest.approx({SCORED: 60}, abs=2)
    assert len([task for task in world.of(TaskOpened) if task.environment == EXPLAIN]) <= 2 * 5 + 1


def test_a_judge_that_gives_no_verdict_does_not_stop_the_sampling_of_what_needs_none(world: JudgedWorld) -> None:
    result = go(world, Both(judge=always(ErrorKind.AUTH)))
    assert not result.stopped_early
    assert counts(world) == pytest.approx({SCORED: 60}, abs=2)


def test_a_model_that_stands_still_holds_no_judge_up(world: JudgedWorld) -> None:
    """Greedy's provider refuses everything for the whole time; solver's answers are judged at their rate."""
    go(world, Both(greedy=storm(0.0, 1e9)), "solver", "greedy", drain_timeout_s=1)
    assert sum(sample.environment == EXPLAIN for sample in world.samples("solver")) == pytest.approx(60, abs=2)


def test_a_killed_run_goes_on_with_its_judged_samples_and_doubles_none(
    world: JudgedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(journal: Journal) -> None:
        journal._db._db.close()
        os.close(journal._db.holders._lock._handle)

    with monkeypatch.context() as killed:
        killed.setattr(Journal, "close", die)
        first = go(world, Both(judge=storm(600.0, 1e9)), for_s=900.0, drain_timeout_s=0)
    assert first.open_tasks > 0
    go(world, Both(), for_s=900.0)
    for environment in (EXPLAIN, SCORED):
        numbers = sorted(s.sequence for s in world.store.samples if s.environment == environment)
        assert numbers == list(range(len(numbers)))


def test_a_judge_in_the_settings_is_all_that_judged_environments_need() -> None:
    assert EXPLAIN not in sampled_environments(Settings())
    named = Settings(environments=f"affine:abd,{EXPLAIN}", judge_model="j", judge_url="http://127.0.0.1:1/v1")
    assert set(sampled_environments(named)) == {"affine:abd", EXPLAIN}
