"""Campaigns that stop sampling what they know well enough, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headgate.core import Chat, ChatReply, Model, Task
from headgate.core.errors import InvalidInputError
from headgate.core.events import Emit, Event, ModelsRanked, PairSettled, SampleAccepted, TaskReturned
from headgate.environments import Environment
from headgate.run import Run, RunPlan, RunResult
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, ScriptedChats, free_environments, run_virtual
from tests.run.run_world import World, models

SURE, UNSURE = "m000@main", "m001@main"
TARGET = {"target_half_width": 0.1, "target_min_tasks": 20, "num_evaluation_workers": 4, "low_sample_threshold": 0}


class OneIsAlwaysRight(ScriptedChats):
    """The first model is always right; the others now and then, the same at every run."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        async def answer(messages: object) -> ChatReply:
            reply = await self.reply(model)
            is_right = model.key == SURE or task.index % 2 == 0
            return ChatReply("right" if is_right else "wrong", reply.prompt_tokens, reply.completion_tokens, 1.0)

        return answer


def _environment(name: str, given: Any) -> Environment:
    return free_environments({name: given})[name] if isinstance(given, float) else given


def run(
    world: World, *, environments: dict[str, Any], instances: int | None = None, duration_s: float | None = None
) -> RunResult:
    async def main() -> RunResult:
        clock = LoopClock(1_767_225_600.0)
        held = {(s.model, s.environment, s.sequence) for s in world.store.samples}
        shuffled = {"done": held, "is_shuffled": True}
        provider = MatrixTaskProvider(list(environments), instances, **shuffled) if instances else None
        plan = RunPlan(
            world.settings(**TARGET),
            StaticRoster(models(2)),
            {
                name: free_environments({name: e})[name] if isinstance(e, float) else e
                for name, e in environments.items()
            },
            world.store,
            OneIsAlwaysRight(clock),
            duration_s=duration_s,
            provider=provider,
            stop_when_idle=instances is not None,
        )
        world.campaign = Run(plan, clock=clock, emit=world.events.append, inline=True)
        return await world.campaign.run()

    return run_virtual(main())


def test_an_evaluation_stops_where_the_mean_is_known_and_finishes_the_rest(world: World) -> None:
    result = run(world, environments={"test:one": 100.0}, instances=100)
    (settled,) = world.of(PairSettled)
    assert (settled.model, settled.mean) == (SURE, 1.0)
    assert settled.high - settled.low <= 0.2
    counts = world.counts()["test:one"]
    assert counts[UNSURE] == 100
    assert settled.tasks <= counts[SURE] <= settled.tasks + 2 * TARGET["num_evaluation_workers"]
    assert (result.stopped_by, result.open_tasks) == ("everything is done", 0)
    returned = {event.model for event in world.of(TaskReturned)}
    assert returned == {SURE}, "what it had queued was withdrawn"


def test_an_evaluation_that_is_run_again_takes_nothing_more_of_a_settled_pair(world: World) -> None:
    run(world, environments={"test:one": 100.0}, instances=100)
    first = world.counts()["test:one"]
    again = run(world, environments={"test:one": 100.0}, instances=120)
    assert again.stopped_by == "everything is done"
    assert world.counts()["test:one"] - first == Counter({UNSURE: 20})


def test_when_all_pairs_are_settled_the_evaluation_ends(world: World) -> None:
    result = run(world, environments={"test:one": 100.0}, instances=900)
    assert {event.model for event in world.of(PairSettled)} == {SURE, UNSURE}
    assert result.samples < 900
    assert (result.stopped_by, result.open_tasks) == ("everything is done", 0)


def test_by_rates_a_settled_environment_gives_its_rate_to_the_model_s_others(world: World) -> None:
    rates = {"test:fast": 17_280.0, "test:slow": 864.0}
    run(world, environments=rates, duration_s=190)
    settled = [(event.model, event.environment) for event in world.of(PairSettled)]
    assert settled == [(SURE, "test:fast")]
    sampler, other = world.campaign.samplers[SURE], world.campaign.samplers[UNSURE]
    assert sampler.rate_per_day("test:fast") == 0
    assert sampler.rate_per_day("test:slow") == pytest.approx(sum(rates.values()))
    assert {e: other.rate_per_day(e) for e in rates} == rates
    counts = world.counts()
    assert counts["test:fast"][SURE] < counts["test:fast"][UNSURE]
    assert counts["test:slow"][SURE] > 2 * counts["test:slow"][UNSURE]


def test_without_a_target_nothing_is_settled(world: World) -> None:
    world.run(models(1), {"test:one": 8_640.0}, duration_s=1_000)
    assert world.of(PairSettled) == []


def test_by_rates_an_environment_whose_tasks_are_listed_in_some_order_is_sampled_on(world: World) -> None:
    """The levels of BabyAI come in turn: the first tasks of its data are not like the others."""
    listed = free_environments({"test:listed": 17_280.0})
    spec = replace(listed["test:listed"].spec, tasks_are_drawn=False)
    listed["test:listed"].spec = spec
    run(world, environments=listed, duration_s=600)
    assert world.of(PairSettled) == []


def test_instances_of_a_matrix_that_may_stop_come_in_a_random_order_that_is_the_same_for_all() -> None:
    async def given(is_shuffled: bool) -> dict[str, list[int]]:
        matrix = MatrixTaskProvider(["test:one"], 40, is_shuffled=is_shuffled)
        matrix.roster_changed(models(2))
        demand, _ = await matrix.take(0.0)
        return {key: [one.sequence for one in demand if one.model == key] for key in (SURE, UNSURE)}

    shuffled, plain = asyncio.run(given(True)), asyncio.run(given(False))
    assert shuffled[SURE] == shuffled[UNSURE] != plain[SURE] == list(range(40))
    assert sorted(shuffled[SURE]) == plain[SURE]


class Graded(ScriptedChats):
    """Each model is right in its share of the tasks, the same at every run."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        async def answer(messages: object) -> ChatReply:
            reply = await self.reply(model)
            is_right = task.index * 7 % 10 < {"m000": 9, "m001": 4, "m002": 4}[model.name]
            return ChatReply("right" if is_right else "wrong", reply.prompt_tokens, reply.completion_tokens, 1.0)

        return answer


def ranked(
    world: World,
    count: int,
    instances: int | None,
    *,
    indifference: float = 0.1,
    names: tuple[str, ...] = ("test:one",),
    stop_after: int | None = None,
) -> RunResult:
    def emit(event: Event) -> None:
        world.events.append(event)
        if isinstance(event, SampleAccepted) and len(world.of(SampleAccepted)) == stop_after:
            assert world.campaign is not None
            world.campaign.stop("seen enough")

    async def main() -> RunResult:
        clock = LoopClock(1_767_225_600.0)
        held = {(s.model, s.environment, s.sequence) for s in world.store.samples}
        provider = MatrixTaskProvider(names, instances, done=held, is_shuffled=True) if instances else None
        plan = RunPlan(
            world.settings(num_evaluation_workers=4, low_sample_threshold=0, indifference=indifference),
            StaticRoster(models(count)),
            {name: free_environments({name: 100.0})[name] for name in names},
            world.store,
            Graded(clock),
            provider=provider,
            stop_when_idle=True,
        )
        world.campaign = Run(plan, clock=clock, emit=emit, inline=True)
        return await world.campaign.run()

    return run_virtual(main())


def test_a_model_that_is_ranked_among_all_others_is_sampled_no_further(world: World) -> None:
    result = ranked(world, 3, 300)
    assert (result.stopped_by, result.open_tasks) == ("everything is done", 0)
    told = {(event.first, event.second): event for event in world.of(ModelsRanked)}
    assert set(told) == {("m000@main", "m001@main"), ("m000@main", "m002@main"), ("m001@main", "m002@main")}
    assert told["m000@main", "m001@main"].verdict == "not worse"
    assert told["m000@main", "m001@main"].tasks < told["m001@main", "m002@main"].tasks
    counts = world.counts()["test:one"]
    assert counts["m000@main"] < counts["m001@main"] < 300
    assert result.ranking is not None
    assert {pair.verdict for pair in result.ranking.pairs} <= {"not worse", "not better", "alike"}
    assert result.ranking.open == result.ranking.next_decides == 0


def test_a_new_model_is_ranked_beside_those_that_are_complete_and_takes_the_samples_alone(world: World) -> None:
    ranked(world, 2, 60, indifference=0)
    before = world.counts()["test:one"]
    result = ranked(world, 3, 60)
    assert result.samples == world.counts()["test:one"]["m002@main"]
    assert world.counts()["test:one"] - before == Counter({"m002@main": result.samples})
    assert result.ranking is not None
    assert result.ranking.open == 0


def test_a_restarted_ranking_counts_what_a_killed_run_left_in_the_journal(world: World) -> None:
    world.store.is_down = True
    left = ranked(world, 2, 200, stop_after=10)
    assert left.spooled >= 10, "nothing is in the store, as after a kill"
    world.store.is_down = False
    result = ranked(world, 2, 200)
    assert result.ranking is not None
    assert result.ranking.open == 0
    assert len(world.store.samples) < 100, "neither model took all of its tasks"


def test_a_ranking_over_several_environments_takes_each_task_of_all_of_them(world: World) -> None:
    result = ranked(world, 2, 100, names=("test:one", "test:two"))
    assert result.ranking is not None
    (pair,) = result.ranking.pairs
    assert pair.verdict == "not worse"
    counts = world.counts()
    assert all(pair.tasks <= counts[name][model] <= pair.tasks + 8 for name in counts for model in counts[name])


@pytest.mark.parametrize(("count", "instances", "message"), [(1, 20, "two models or more"), (2, None, "fixed number")])
def test_what_cannot_be_ranked_does_not_begin(world: World, count: int, instances: int | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ranked(world, count, instances)
    assert world.counts() == {}


def test_a_ranking_of_a_running_process_follows_what_was_invalidated(world: World) -> None:
    """Samples that the store does not count any more are taken out, those that it does not have yet stay in."""

    class Invalidated(MemoryStore):
        gone = 0

        async def task_scores(self, campaign: str) -> list[tuple[str, str, int, float]]:
            return (await super().task_scores(campaign))[: None if not self.gone else 0]

        async def invalid(self, campaign: str, since: float) -> list[tuple[str, str, float, float, int]]:
            first = self.samples[: self.gone]
            return [(s.model, s.environment, s.finished_at, s.score or 0.0, s.index) for s in first]

        async def to_resample(self, campaign: str, *, every: bool = False) -> list[tuple[str, str, int, str]]:
            assert every, "a row needs all of its tasks, also those that nobody asked to have again"
            return [(s.model, s.environment, s.sequence, "sample.2") for s in self.samples[: self.gone]]

    async def main() -> tuple[int, int, set[str]]:
        clock = LoopClock(1_767_225_600.0)
        store = Invalidated()
        provider = MatrixTaskProvider(["test:one"], 400, is_shuffled=True)
        settings = world.settings(num_evaluation_workers=4, indifference=0.01, sink_max_wait=1, sink_batch_size=4)
        environments = free_environments({"test:one": 100.0})
        made = (settings, StaticRoster(models(3)), environments, store, Graded(clock))
        run = Run(RunPlan(*made, provider=provider, stop_when_idle=True), clock=clock, emit=lambda _: None, inline=True)
        running = asyncio.ensure_future(run.run())
        while len(store.samples) < 150:  # noqa: ASYNC110 - of virtual time
            await asyncio.sleep(1)

        def tasks() -> int:
            report = run._settling.report()
            assert report is not None
            return report.pairs[-1].tasks

        before = tasks()
        store.gone = 60
        await run._recount()
        after = tasks()
        while tasks() < before and not running.done():  # noqa: ASYNC110 - of virtual time
            await asyncio.sleep(1)
        again = {sample.model for sample in store.samples if sample.stage == "sample.2"}
        run._settling.give_up("m002@main", "its service fails")
        assert not await run._settling.recount(store), "m001 has nobody left to be compared with"
        run.stop("seen enough")
        await running
        return before, after, again

    before, after, again = run_virtual(main())
    assert before > 20
    assert after < before / 2, "the first tasks of all models have to be taken again"
    assert again == {"m001@main", "m002@main"}, "m000 had been compared with both"
