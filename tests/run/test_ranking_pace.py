"""Models of a ranking that wait for those with which they are still compared, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.core import Chat, ChatReply, ErrorKind, Launch, Model, Serving, Task, unit_hash
from headgate.core.events import Emit, ModelGivenUp, ModelPaused, ModelsRanked
from headgate.reports import ranking_lines
from headgate.run import Run, RunPlan, RunResult
from headgate.run.matrix import Cell, MatrixTaskProvider
from headgate.sampling import RankingStop, StaticRoster
from headgate.simulation import (
    LoopClock,
    Script,
    ScriptedChats,
    ServiceTime,
    free_environments,
    never_fails,
    run_virtual,
)
from tests.run.budgets.test_daily_budgets import HOUR_S, BudgetWorld, Metered, limited
from tests.run.run_world import World, models

TASKS = 200
LEAD = 20
DOWN = "m004@main"
WORKING = ["m000@main", "m001@main", "m002@main", "m003@main"]
NAMES = ("test:one", "test:two")


class Apart(ScriptedChats):
    """Each model is right in its share of the tasks: 90, 70, 50, 30 and 10 %."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        async def answer(messages: object) -> ChatReply:
            reply = await self.reply(model)
            is_right = unit_hash("answer", task.environment, str(task.index)) < 0.9 - 0.2 * model.uid
            return ChatReply("right" if is_right else "wrong", reply.prompt_tokens, reply.completion_tokens, 1.0)

        return answer


def ranked(
    world: World,
    script: Script = never_fails,
    *,
    during: Callable[[Run, LoopClock], Awaitable[None]] | None = None,
    done: Collection[Cell] = (),
    roster: Sequence[Model] | None = None,
    **settings: Any,
) -> RunResult:
    """Rank five models, of which the pairs among those that answer are decided within half of the tasks."""

    async def main() -> RunResult:
        clock = LoopClock(1_767_225_600.0)
        plan = RunPlan(
            world.settings(num_evaluation_workers=20, indifference=0.05, **settings),
            StaticRoster(roster or models(5, max_parallel=4)),
            free_environments(dict.fromkeys(NAMES, 100.0)),
            world.store,
            Apart(clock, service=ServiceTime(0.5), script=script),
            provider=MatrixTaskProvider(NAMES, TASKS, done=done, is_shuffled=True),
            stop_when_idle=True,
        )
        world.campaign = Run(plan, clock=clock, emit=world.events.append, inline=True)
        beside = asyncio.ensure_future(during(world.campaign, clock)) if during is not None else None
        result = await world.campaign.run()
        if beside is not None:
            await beside
        return result

    return run_virtual(main())


def rows(world: World, model: str) -> int:
    """Return how many tasks a model has in the environment where it has more."""
    return max(counts[model] for counts in world.counts().values())


def fails_until(seconds: float) -> Script:
    return lambda model, at: ErrorKind.PROVIDER_FAILURE if model.key == DOWN and at < seconds else None


def test_a_model_that_is_down_does_not_make_the_others_take_all_of_their_tasks(world: World) -> None:
    needed = World(world.folder.parent / "other")
    ranked(needed, roster=models(4, max_parallel=4))
    result = ranked(world, fails_until(1e9))
    assert [event.model for event in world.of(ModelGivenUp)] == [DOWN]
    assert result.stopped_by == "everything is done"
    assert result.ranking is not None
    assert all(DOWN in (pair.first, pair.second) for pair in result.ranking.pairs if pair.verdict == "open")
    for model in WORKING:
        assert rows(world, model) <= max(rows(needed, model), rows(world, DOWN)) + LEAD + 8 < TASKS


def test_a_model_that_recovers_catches_up_and_every_two_models_are_ranked(world: World) -> None:
    result = ranked(world, fails_until(25))
    assert world.of(ModelPaused)
    assert result.ranking is not None
    assert result.ranking.open == 0
    assert result.stopped_by == "everything is done"
    assert all(rows(world, model) < TASKS for model in WORKING)


def test_a_model_that_is_paused_by_hand_holds_the_others_until_it_goes_on(world: World) -> None:
    seen: list[dict[str, int]] = []

    async def during(run: Run, clock: LoopClock) -> None:
        await run.steering.steer({"verb": "pause", "model": DOWN}, "ops", dry_run=False)
        await clock.sleep(2_000)
        seen.append({model: rows(world, model) for model in [*WORKING, DOWN]})
        await run.steering.steer({"verb": "resume", "model": DOWN}, "ops", dry_run=False)

    result = ranked(world, during=during)
    (counts,) = seen
    assert counts[DOWN] == 0
    assert all(counts[model] < 80 for model in WORKING)
    assert result.ranking is not None
    assert (result.ranking.open, result.stopped_by) == (0, "everything is done")


def test_models_do_not_wait_for_samples_of_an_environment_that_is_paused_by_hand(world: World) -> None:
    seen: list[dict[str, Counter[str]]] = []

    async def during(run: Run, clock: LoopClock) -> None:
        await run.steering.steer({"verb": "pause", "environment": NAMES[1]}, "ops", dry_run=False)
        await clock.sleep(2_000)
        seen.append(world.counts())
        await run.steering.steer({"verb": "resume", "environment": NAMES[1]}, "ops", dry_run=False)

    result = ranked(world, during=during)
    (counts,) = seen
    assert not counts[NAMES[1]]
    assert all(counts[NAMES[0]][model] == TASKS for model in [*WORKING, DOWN])
    assert result.ranking is not None
    assert (result.ranking.open, result.stopped_by) == (0, "everything is done")
    assert all(world.counts()[NAMES[1]][model] < TASKS for model in WORKING)


def test_a_run_is_stopped_while_models_wait(world: World) -> None:
    async def during(run: Run, clock: LoopClock) -> None:
        await run.steering.steer({"verb": "pause", "model": DOWN}, "ops", dry_run=False)
        await clock.sleep(2_000)
        run.stop("seen enough")

    result = ranked(world, during=during)
    assert result.stopped_by == "seen enough"
    assert result.status.captured_at < 1_767_225_600.0 + 2_010


def test_models_that_are_served_from_weights_take_no_turns(world: World) -> None:
    first, *others = models(5, max_parallel=4)
    served = Model(first.name, uid=0, max_parallel=4, serve=Serving(Launch("llama.cpp", "/no/such.gguf", "m")))
    ranked(world, fails_until(1e9), roster=[served, *others])
    assert rows(world, served.key) > 100
    assert all(rows(world, model) < 80 for model in WORKING[1:])


def test_samples_put_off_to_a_batch_count_as_taken_and_those_that_another_run_has_as_well() -> None:
    """What begins or is never queued moves the limits of others: here, all of one model's cells at once."""

    async def limits() -> tuple[dict[str, int], list[int]]:
        matrix = MatrixTaskProvider(["test:one"], 100, is_shuffled=True)
        matrix.roster_changed(models(2))
        stop = RankingStop(0.05, matrix.rows())
        stop.join(WORKING[:2])
        matrix.limits = {WORKING[0]: 10, WORKING[1]: 1_000}
        given, _ = await matrix.take(0.0)
        return stop.limits(matrix.reached), [sum(one.model == model for one in given) for model in WORKING[:2]]

    assert asyncio.run(limits()) == ({WORKING[0]: 100 + LEAD, WORKING[1]: 10 + LEAD}, [10, 100])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_stored_and_however_fast_models_are_every_task_of_open_pairs_is_given_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    keys, tasks = [model.key for model in models(4)], rng.choice([50, 130])
    order = MatrixTaskProvider(NAMES, tasks, is_shuffled=True).rows()
    done = set[Cell]()
    for key in keys:
        share, reach = rng.choice([0.0, 0.9, 1.0]), rng.randrange(tasks + 1)
        done |= {(key, *cell) for cell, row in order.items() if row < reach and rng.random() < share}
    matrix = MatrixTaskProvider(NAMES, tasks, done=done, is_shuffled=True)
    stop = RankingStop(1e-6, order)
    for key, environment, number in done:
        stop.past(key, environment, number, 0.5)
    matrix.roster_changed(models(4))
    stop.join(keys)
    queue, given, down = Counter[str](), 0, set(rng.sample(keys, rng.randrange(4)))

    async def rounds() -> int:
        """Return how many rounds it took; models that are down begin nothing before nobody else can."""
        nonlocal given
        for count in range(10_000):
            matrix.limits = stop.limits(lambda key: matrix.reached(key) - queue[key] // len(NAMES))
            demand = (await matrix.take(0.0))[0] if matrix.next_at(0.0) is not None else []
            given += len(demand)
            queue.update(one.model for one in demand)
            if not demand and not +queue:
                return count
            if not demand and not any(queue[key] for key in keys if key not in down):
                down.clear()
            for key in keys:
                if key not in down:
                    queue[key] -= min(queue[key], rng.randrange(1, 9))
        raise AssertionError("models wait for each other")

    asyncio.run(rounds())
    assert given == len(keys) * len(order) - len(done)
    assert matrix.is_empty


def test_nothing_is_told_of_a_model_that_has_no_score_though_failures_count_as_zero(world: World) -> None:
    """The table of scores gives it no rank either."""
    result = ranked(world, fails_until(1e9))
    assert result.ranking is not None
    assert result.ranking.unscored == (DOWN,)
    pairs = [*result.ranking.pairs, *world.of(ModelsRanked)]
    assert not [pair for pair in pairs if DOWN in (pair.first, pair.second) and pair.verdict != "open"]
    lines = ranking_lines(result.ranking)
    assert lines[0].startswith("6 of 10 pairs of models are ranked")
    assert lines[-1] == f"no score, and so no rank: {DOWN}"


def test_a_model_out_of_its_budget_is_not_left_behind_and_the_other_goes_on_with_it(tmp_path: Path) -> None:
    world, provider = BudgetWorld(tmp_path), Metered()
    seen: list[Counter[str]] = []

    async def during(run: Run, clock: LoopClock) -> None:
        for hours in (23, 7):
            await clock.sleep(hours * HOUR_S)
            seen.append(Counter(model for _, model in provider.sent))

    roster = [limited("alpha", 4_000), *models(1)]
    tasks = MatrixTaskProvider(["test:one"], TASKS, is_shuffled=True)
    world.run(roster, provider, duration_s=40 * HOUR_S, during=during, tasks=tasks, indifference=1e-4)
    (spent, later) = seen
    assert 0 < spent["alpha"] <= 40
    assert spent["m000"] < 120
    assert spent["m000"] < later["m000"] < TASKS, "the budget of alpha has room again"
