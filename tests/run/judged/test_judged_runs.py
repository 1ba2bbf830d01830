"""Runs with a judge in virtual time: what they record, and what judges, models and answers can do to them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from headgate.core import ChatReply, ErrorKind, Message, Model
from headgate.core.events import (
    AnswerJudged,
    CampaignStarted,
    JournalBlocked,
    JournalRecovered,
    JudgementMissing,
    RequestFinished,
    SampleAccepted,
    SchedulerJobStarted,
    TaskDeferred,
)
from headgate.environments import coverage_judge
from headgate.environments.judge_questions import REMINDER
from headgate.environments.shares import MODEL
from headgate.run import Run
from headgate.sampling import Roster
from tests.run.judged.judged_world import JUDGE, JudgedWorld, Providers, always, model, storm

STORM = (10.0, 310.0)
"""Five minutes."""


@pytest.fixture
def world(tmp_path: Path) -> JudgedWorld:
    return JudgedWorld(tmp_path)


def test_what_an_environment_has_few_of_is_taken_in_the_name_of_the_model(world: JudgedWorld) -> None:
    seen = []
    scripts = {host: lambda _at, host=host: seen.append((host, MODEL.get())) for host in ("solver", "greedy", "judge")}
    world.go([model("solver"), model("greedy")], Providers(**scripts), instances=2)
    assert set(seen) == {("solver", "solver@main"), ("greedy", "greedy@main"), ("judge", "")}


@pytest.mark.parametrize("max_unjudged", [2_000, 20])
def test_answers_that_take_long_to_judge_hold_up_no_other_models_samples(world: JudgedWorld, max_unjudged: int) -> None:
    """The judge has four slots; what it says of three models takes a minute, of the fourth a second."""

    class SlowToJudge(Providers):
        async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
            reply = await super().chat(model, messages, task_header=task_header)
            if any("verbose" in message.content for message in messages):
                await asyncio.sleep(59.0)
            return replace(reply, text=f"{reply.text} verbose") if model.name.startswith("verbose") else reply

    verbose = [model("solver", name=f"verbose{n}") for n in range(3)]
    result = world.go([*verbose, model("solver")], SlowToJudge(service_s=1.0), instances=20, max_unjudged=max_unjudged)
    assert result.scored == 80
    began = min(s.started_at for s in world.store.samples)
    judged_s = max(s.finished_at for s in world.samples("solver")) - began
    assert judged_s < 4 * 60.0 + 20.0  # fifteen minutes in turns by number
    assert max(s.finished_at for s in world.store.samples) - began > 900.0


def test_judgements_cost_what_the_table_says_of_the_judge_beside_what_the_answer_cost(
    world: JudgedWorld, tmp_path: Path
) -> None:
    rows = [{"model": JUDGE.name, "input": 2, "output": 8}, {"model": "solver", "input": 1, "output": 3}]
    table = tmp_path / "prices.json"
    table.write_text(orjson.dumps({"date": "2026-01-31", "source": "a list", "prices": rows}).decode())
    world.go([model("solver")], Providers(), instances=3, judgements=2, prices=str(table))
    judged: Counter[str] = Counter()
    for told in (event for event in world.events if isinstance(event, AnswerJudged)):
        judged[told.task_id] += 2 * told.prompt_tokens + 8 * told.completion_tokens
    assert {s.task_id: s.judge_cost_micro for s in world.store.samples} == judged
    answers = [s.prompt_tokens + 3 * s.completion_tokens for s in world.store.samples]
    assert [s.cost_micro for s in world.store.samples] == answers
    assert min(*answers, *judged.values()) > 0


def test_every_sample_is_the_aggregate_of_its_judgements(world: JudgedWorld) -> None:
    result = world.go([model("solver"), model("greedy")], Providers(), instances=20, judgements=3)
    assert (result.samples, result.scored, result.stored, result.open_tasks) == (40, 40, 40, 0)
    assert {(s.stage, s.error_kind) for s in world.store.samples} == {("sample", None)}
    assert [s.sequence for s in world.samples("solver")] == list(range(20))
    assert all(s.score == 1.0 and s.success for s in world.samples("solver"))
    assert all(s.why.startswith("3 of 3 judgements agree to 1.00 (") for s in world.store.samples)
    (solver,) = [pair for pair in result.status.judged if pair.model == "solver@main"]
    assert (solver.samples, solver.mean_score, solver.judgements, solver.agreement) == (20, 1.0, 60, 1.0)
    judged = Counter((e.task_id, e.number) for e in world.of(AnswerJudged))
    assert set(judged.values()) == {1}
    assert len(judged) == 120


def test_workers_are_shared_by_the_policy_of_the_settings(world: JudgedWorld) -> None:
    result = world.go(
        [model("solver"), model("greedy")], Providers(), instances=50, judgements=2, task_admission="bounded_borrow"
    )
    assert (result.samples, result.scored) == (100, 100)
    assert [event.policy for event in world.of(SchedulerJobStarted)] == ["bounded_borrow"]


def test_tokens_and_time_of_a_sample_are_the_model_s_and_not_the_judge_s(world: JudgedWorld) -> None:
    world.go([model("solver")], Providers(service_s=2.0), instances=1, judgements=2)
    (sample,) = world.store.samples
    assert (sample.prompt_tokens, sample.completion_tokens, sample.turns) == (100, 50, 1)
    assert sample.latency_s == pytest.approx(2.0)
    assert sample.finished_at - sample.started_at == pytest.approx(4.0)
    conversation = orjson.loads(sample.conversation)
    assert [role for role, _ in conversation] == ["user", "assistant", "system", "system"]
    assert conversation[-1][1].startswith("Judgement 2: 1. ")
    assert {e.trace_id for e in world.of(AnswerJudged)} == {sample.trace_id}
    requests = {(e.request_id.removeprefix(sample.trace_id), e.trace_id) for e in world.of(RequestFinished)}
    assert requests == {(f".{stage}.1", sample.trace_id) for stage in ("rollout", "judge.1", "judge.2")}


def test_a_judge_in_a_storm_holds_no_rollout_up_and_loses_no_sample(world: JudgedWorld) -> None:
    providers = Providers(judge=storm(*STORM))
    result = world.go([model("solver"), model("greedy")], providers, instances=400, judgements=2)
    assert (result.samples, result.scored, result.stopped_by) == (800, 800, "everything is done")
    # Eight workers, two seconds each: they were busy all the time, and the judge answered nobody.
    rollouts = providers.count("solver", *STORM) + providers.count("greedy", *STORM)
    assert rollouts >= 0.95 * min(800, 300 * 8 / 2)
    assert providers.count("judge", STORM[0] + 2.0, STORM[1]) == 0
    assert providers.count("judge") == 1_600
    assert providers.peak["judge"] <= JUDGE.max_parallel
    assert len({(s.model, s.sequence) for s in world.store.samples}) == 800


def test_no_more_answers_wait_for_the_judge_than_are_allowed(world: JudgedWorld) -> None:
    open_rows: list[int] = []

    async def watch(run: Run) -> None:
        while True:
            await asyncio.sleep(5.0)
            status = run.status()
            open_rows.append(status.workers.active + status.workers.parked + status.unjudged)

    providers = Providers(judge=storm(*STORM))
    result = world.go([model("solver")], providers, instances=200, max_unjudged=50, during=watch)
    assert result.scored == 200
    assert max(open_rows) == 50


@pytest.mark.long
def test_a_model_in_a_storm_keeps_no_other_model_waiting(world: JudgedWorld) -> None:
    providers = Providers(solver=storm(*STORM))
    result = world.go([model("solver"), model("greedy")], providers, instances=400)
    assert (result.samples, result.scored) == (800, 800)
    assert providers.count("greedy", STORM[0], STORM[1]) >= 350
    assert providers.peak["greedy"] == 8


@pytest.mark.parametrize("how", ["leaves the roster", "is given up"])
def test_samples_that_wait_to_run_again_are_withdrawn_with_their_model(world: JudgedWorld, how: str) -> None:
    both = [model("greedy"), model("solver", uid=1)]

    class Leaving:
        async def load(self) -> Roster:
            has_left = how == "leaves the roster" and asyncio.get_running_loop().time() > 500
            return Roster(tuple(both[1:] if has_left else both))

    async def give_up(run: Run) -> None:
        await asyncio.sleep(550)
        if how == "is given up":
            run._settling.give_up("greedy@main", "nobody wants it")

    providers, refresh_s = Providers(greedy=storm(0, 1e9)), 550 if how == "leaves the roster" else 50_000
    changes = {"roster": Leaving(), "roster_refresh_s": refresh_s, "request_queue_wait_s": 30, "early_stop": False}
    result = world.go(both, providers, instances=6, during=give_up, **changes)
    assert world.of(TaskDeferred)
    assert len(world.samples("solver")) == 6
    assert world.ended_at < 2_000, "no deferred sample of the other keeps the run from its end"
    assert world.run is not None
    assert world.run._stages.rows() == []
    assert result.open_tasks <= 1, "those in progress may stay open"


def test_a_judge_that_always_fails_leaves_samples_without_a_score_and_stops_the_run(world: JudgedWorld) -> None:
    providers = Providers(judge=always(ErrorKind.AUTH))
    result = world.go([model("solver"), model("greedy")], providers, instances=400, judgements=2)
    assert result.stopped_early
    assert "10 of the last 10 samples failed" in result.stopped_by
    assert 10 <= result.samples < 100
    assert {(s.score, s.error_kind, s.success) for s in world.store.samples} == {(None, "judge", False)}
    assert "none of 2 judgements can be read: scripted auth" in str(world.store.samples[0].error)
    assert all(pair.judge_errors and not pair.errors for pair in result.status.judged)
    assert result.open_tasks == 800 - result.samples


def test_a_missing_judgement_is_left_out_and_stated(world: JudgedWorld) -> None:
    providers = Providers()
    seen: Counter[str] = Counter()

    def replies(messages) -> str:
        # Which of the three wordings it is, by the rubric's first point: one of them is never answered readably.
        first = messages[1].content.split("\n1. ")[1]
        seen[first[:10]] += 1
        return "I would rather not say." if first.startswith("names as") else coverage_judge(messages)

    providers.replies = replies
    result = world.go([model("solver")], providers, instances=10, judgements=3, early_stop=False)
    assert result.scored == 10
    assert {s.why.partition(" agree")[0] for s in world.store.samples} == {"2 of 3 judgements"}
    missing = world.of(JudgementMissing)
    assert len(missing) == 10
    assert "its reply holds no verdict: 'I would rather not say.'" in missing[0].reason
    assert seen["names as t"] == 20  # asked once more each


def test_an_unreadable_verdict_is_asked_for_once_more_with_a_reminder(world: JudgedWorld) -> None:
    providers = Providers()
    providers.replies = lambda messages: coverage_judge(messages) if messages[-1].content == REMINDER else "Hm."
    result = world.go([model("solver")], providers, instances=5)
    assert (result.scored, world.of(JudgementMissing)) == (5, [])
    assert providers.count("judge") == 10
    assert [m.role for m in providers.judge_saw[-1]] == ["system", "user", "assistant", "user"]
    assert all(s.why.startswith("1 of 1 judgement: ") for s in world.store.samples)


def test_an_answer_that_needs_no_judge_is_recorded_at_once_while_the_judge_is_away(world: JudgedWorld) -> None:
    providers = Providers(judge=storm(0.0, 300.0))
    at: dict[str, float] = {}

    async def watch(run: Run) -> None:
        while True:
            await asyncio.sleep(1.0)
            for event in world.of(SampleAccepted):
                at.setdefault(event.sample.model, asyncio.get_running_loop().time())

    # The environment's own baseline cannot answer nothing, so this model's provider does.
    original = providers.chat

    async def chat(model, messages, *, task_header=None):
        reply = await original(model, messages, task_header=task_header)
        return type(reply)("") if model.name == "random" else reply

    providers.chat = chat  # type: ignore[method-assign]
    world.go([model("random"), model("solver")], providers, instances=3, during=watch)
    assert at["random@main"] < 10.0
    assert at["solver@main"] > 300.0
    assert {(s.score, s.why) for s in world.samples("random")} == {(0.0, "the answer is empty")}


def test_a_model_that_fails_is_recorded_as_what_it_is_and_asks_no_judge(world: JudgedWorld) -> None:
    providers = Providers(solver=always(ErrorKind.BAD_REQUEST))
    result = world.go([model("solver"), model("greedy")], providers, instances=10, early_stop=False)
    assert (result.samples, result.scored) == (20, 10)
    assert {(s.score, s.error_kind) for s in world.samples("solver")} == {(None, "bad_request")}
    assert providers.count("judge") == 10


def test_a_stopped_run_judges_what_it_has_and_the_next_one_takes_the_rest(world: JudgedWorld) -> None:
    async def stop(run: Run) -> None:
        await asyncio.sleep(21.0)
        run.stop("enough")

    first = world.go([model("solver")], Providers(), instances=200, during=stop)
    assert first.stopped_by == "enough"
    assert 20 < first.samples < 120
    assert 21.0 < world.ended_at < 42.0  # the drain time is 20 s
    assert first.samples + first.open_tasks == 200
    second = world.go([model("solver")], Providers(), instances=200)
    assert second.samples == 200 - first.samples
    assert world.of(CampaignStarted)[-1].reopened_tasks == first.open_tasks
    assert [s.sequence for s in world.samples("solver")] == list(range(200))


@pytest.mark.parametrize("kind", [ErrorKind.RATE_LIMITED, ErrorKind.QUOTA])
def test_a_stopped_run_does_not_wait_for_ever_for_a_judge_that_is_away(world: JudgedWorld, kind: ErrorKind) -> None:
    async def stop(run: Run) -> None:
        await asyncio.sleep(20.0)
        run.stop("enough")

    away = Providers(judge=always(kind))
    first = world.go([model("solver")], away, instances=50, drain_timeout_s=5, during=stop)
    assert (first.samples, first.open_tasks) == (0, 50)
    assert world.ended_at == pytest.approx(25.0, abs=1.0)
    second = world.go([model("solver")], Providers(), instances=50)
    assert (second.samples, second.scored) == (50, 50)


def test_a_defect_of_ours_stops_the_run_with_its_traceback_and_leaves_the_tasks_open(world: JudgedWorld) -> None:
    providers = Providers()

    def broken(messages) -> str:
        raise KeyError("a mistake")

    providers.replies = broken
    with pytest.raises(ExceptionGroup) as raised:
        world.go([model("solver")], providers, instances=5)
    assert raised.group_contains(KeyError, match="a mistake")
    assert world.store.samples == []
    assert world.go([model("solver")], Providers(), instances=5).scored == 5


def test_while_the_disk_is_full_nothing_begins_and_afterwards_nothing_is_missing(world: JudgedWorld) -> None:
    async def fill(run: Run) -> None:
        journal, is_full = run.journal.journal, False
        for name in ("accept", "adopt", "open", "next_batch"):
            real = getattr(journal, name)

            def write(*args, real=real, **kwargs):
                if is_full:
                    raise sqlite3.OperationalError("database or disk is full")
                return real(*args, **kwargs)

            setattr(journal, name, write)
        await asyncio.sleep(20.0)
        is_full = True
        await asyncio.sleep(100.0)
        is_full = False

    providers = Providers()
    result = world.go([model("solver")], providers, instances=200, during=fill)
    assert (result.samples, result.scored) == (200, 200)
    assert providers.count("solver", 30.0, 120.0) == 0
    assert len(world.of(JournalBlocked)) == len(world.of(JournalRecovered)) == 1


def test_what_a_judge_says_is_stored_without_secrets_and_can_be_stored_whatever_it_says(world: JudgedWorld) -> None:
    providers = Providers()
    said = iter(["\ud800 no verdict, sk-proj-a1B2c3D4e5F6", '{"score": 1, "reason": "the key sk-proj-a1B2c3D4e5F6"}'])
    providers.replies = lambda _messages: next(said)
    result = world.go([model("solver")], providers, instances=1)
    assert result.scored == 1
    (sample,) = world.store.samples
    assert "a1B2c3D4" not in sample.why + sample.conversation
    assert "the key [redacted]" in sample.why
    for message in providers.judge_saw[-1]:
        message.content.encode()
