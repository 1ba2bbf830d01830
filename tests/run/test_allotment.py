"""A campaign by rates whose samples of a day go to the models that they are expected to rank, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import Chat, ChatReply, Model, Task
from headgate.core.errors import InvalidInputError, StoreError
from headgate.core.events import Emit
from headgate.run import Run, RunPlan
from headgate.run.allotment import EVERY_S
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, ScriptedChats, free_environments, run_virtual
from tests.run.run_world import World, models

RATE = 2_880.0
BEST, LAST = "m000@main", "m003@main"


class Graded(ScriptedChats):
    """Each model is right in its share of the tasks, the same at every run; two of them in about as many."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        async def answer(messages: object) -> ChatReply:
            reply = await self.reply(model)
            share = {"m000": 95, "m001": 50, "m002": 52, "m003": 5}[model.name]
            is_right = (task.index * 37 + model.uid * 41) % 101 < share
            return ChatReply("right" if is_right else "wrong", reply.prompt_tokens, reply.completion_tokens, 1.0)

        return answer


class Flaky(MemoryStore):
    """A store that cannot be read when the shares are first asked for."""

    asked = 0

    async def spent(self, since: float) -> list[tuple[str, str, float, int, int, int, int | None]]:
        self.asked += 1
        if self.asked == 1:
            raise StoreError("the store is away")
        return await super().spent(since)


def sampled(world: World, *, duration_s: float, **settings: Any) -> Run:
    async def main() -> Run:
        clock = LoopClock(1_767_225_600.0)
        made = RunPlan(
            world.settings(num_evaluation_workers=8, sink_max_wait=60, **settings),
            StaticRoster(models(4)),
            free_environments({"test:one": RATE}, data_length=100_000),
            world.store,
            Graded(clock),
            duration_s=duration_s,
        )
        run = Run(made, clock=clock, emit=world.events.append, inline=True)
        await run.run()
        return run

    return run_virtual(main())


def test_the_samples_of_a_day_go_to_the_models_that_are_not_told_apart_and_are_no_more_than_by_rates(
    world: World,
) -> None:
    world.store = Flaky()
    run = sampled(world, duration_s=2 * EVERY_S + 60, allocation="ranking", indifference=0.03)
    counts = world.counts()["test:one"]
    assert sum(counts.values()) == pytest.approx(4 * RATE / 23.6, rel=0.05)
    assert counts[LAST] < 0.7 * counts["m001@main"]
    assert counts[BEST] >= 0.95 * RATE / 23.6
    rates = {key: sampler.rate_per_day("test:one") for key, sampler in run.samplers.items()}
    assert rates[LAST] >= 0.25 * RATE
    assert sum(rates.values()) == pytest.approx(4 * RATE)


def test_a_new_model_is_not_boosted_and_by_default_all_have_their_rates(world: World, tmp_path: Path) -> None:
    allotted = sampled(world, duration_s=100, allocation="ranking", indifference=0.03)
    assert {sampler.multiplier for sampler in allotted.samplers.values()} == {1.0}
    other = World(tmp_path / "other")
    plain = sampled(other, duration_s=100)
    assert {sampler.rate_per_day("test:one") for sampler in plain.samplers.values()} == {3 * RATE}


def test_shares_are_set_anew_as_soon_as_samples_were_invalidated(world: World) -> None:
    async def main() -> int:
        clock = LoopClock(1_767_225_600.0)
        store = Flaky()
        settings = world.settings(allocation="ranking", indifference=0.03)
        environments = free_environments({"test:one": RATE})
        plan = RunPlan(settings, StaticRoster(models(2)), environments, store, Graded(clock), duration_s=100)
        run = Run(plan, clock=clock, emit=world.events.append, inline=True)
        running = asyncio.ensure_future(run.run())
        await asyncio.sleep(50)
        before = store.asked
        await run._recount()
        await asyncio.sleep(1)
        asked = store.asked - before
        await running
        return asked

    assert run_virtual(main()) == 1


def test_an_allocation_by_ranking_without_an_indifference_is_refused_and_so_is_an_indifference_alone(
    world: World,
) -> None:
    with pytest.raises(ValueError, match="allocation: ranking needs an indifference"):
        Settings(allocation="ranking")
    with pytest.raises(InvalidInputError, match="allocation=ranking"):
        sampled(world, duration_s=10, indifference=0.03)
