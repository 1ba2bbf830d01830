"""The arena over a real endpoint and a real store: what is asked, what is kept, and what is never asked twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate import reports
from headgate.config import Settings
from headgate.core import errors
from headgate.environments.rubric import Criterion, Rubric
from headgate.models import FaultPlan, serve
from headgate.reports import ArenaComparison
from headgate.run import run_judged
from headgate.run.arena import ArenaRequest, ArenaResult, run_arena
from headgate.run.arena.answers import answer_of
from headgate.run.arena.comparisons import score_of
from headgate.run.arena.pairings import Pairing, chosen
from headgate.storage import open_store

EXPLAIN = "headgate:explain"


@pytest.fixture
def places(tmp_path: Path, roster_file: Path, baselines: str) -> dict[str, Any]:
    roster_file.write_text(roster_file.read_text() + "- {name: greedy, model: baseline-greedy}\n")
    return {
        "roster": str(roster_file),
        "store": str(tmp_path / "samples"),
        "journal": tmp_path / "journal",
        "judge_model": "baseline-judge",
        "judge_url": baselines,
    }


async def compared(places: dict[str, Any], request: ArenaRequest, **more: Any) -> ArenaResult:
    return await run_arena(Settings(**places | more), request)


async def test_models_are_rated_as_their_answers_deserve_and_nothing_is_asked_twice(places) -> None:
    first = await compared(places, ArenaRequest(instances=12))
    assert (len(first.comparisons), first.possible, first.unjudged) == (36, 36, 0)
    board = reports.build_arena(first.comparisons, judge=first.judge)
    assert [one.model for one in board.models] == ["solver@main", "greedy@main", "random@main"]
    assert [one.rank for one in board.models] == [1, 2, 3]
    again = await compared(places, ArenaRequest(instances=12))
    assert again.run is None
    assert again.comparisons == first.comparisons
    more = await compared(places, ArenaRequest(instances=13))
    assert more.run is not None
    assert (more.run.scored, len(more.comparisons)) == (3, 39)


async def test_comparisons_are_counted_with_no_samples(places) -> None:
    await compared(places, ArenaRequest(instances=3))
    store = open_store(places["store"])
    rows = (await store.scan(columns=["task_id", "environment", "model"])).frame
    store.close()
    assert rows["environment"].unique().to_list() == [EXPLAIN]
    assert len(rows) == 9
    kept = open_store(f"{places['store']}/arena")
    assert len((await kept.scan(columns=["task_id"])).frame) == 9
    kept.close()


async def test_stored_answers_are_taken_whatever_campaign_they_are_of(places) -> None:
    await run_judged(Settings(**places, campaign="earlier"), instances=4)
    result = await compared(places, ArenaRequest(models=("solver", "greedy@main")))
    assert {(c.first, c.second) for c in result.comparisons} == {("greedy@main", "solver@main")}
    assert result.possible == 4


async def test_another_judge_and_another_rubric_ask_anew(places) -> None:
    await compared(places, ArenaRequest(instances=3))
    other = await compared(places, ArenaRequest(), judge_model="baseline-judge-2")
    assert other.run is not None
    assert other.run.scored == 9
    rubric = Rubric(name="length", criteria=(Criterion(text='says "the"'),))
    by_rubric = await compared(places, ArenaRequest(rubric=rubric))
    assert by_rubric.run is not None
    assert by_rubric.run.scored == 9


async def test_a_budget_is_spent_on_every_two_models_alike_and_0_asks_nothing(places) -> None:
    result = await compared(places, ArenaRequest(instances=4, comparisons=6))
    assert len(result.comparisons) == 6
    board = reports.build_arena(result.comparisons)
    assert {number for number, _ in board.shares.values()} == {2}
    shown = await compared(places, ArenaRequest(comparisons=0))
    assert (shown.run, len(shown.comparisons), shown.possible) == (None, 6, 12)


async def test_a_judge_that_fails_is_never_a_model_s_loss(places) -> None:
    await run_judged(Settings(**places), instances=3)
    async with serve(FaultPlan.parse("key:key=another-one")) as locked:
        failed = await compared(places, ArenaRequest(), judge_url=locked.base_url, early_stop=False)
    assert (failed.comparisons, failed.unjudged) == ((), 9)
    assert failed.sentence().endswith(f", 9 without a verdict ({failed.why_unjudged})")
    assert "401" in failed.why_unjudged
    mended = await compared(places, ArenaRequest())
    assert (len(mended.comparisons), mended.unjudged) == (9, 0)
    assert mended.why_unjudged == ""
    assert "without a verdict" not in mended.sentence()


async def test_an_unreadable_judge_is_reminded_and_then_left_out(places) -> None:
    await run_judged(Settings(**places), instances=2)
    result = await compared(places, ArenaRequest(), judge_model="baseline-random", early_stop=False)
    assert result.comparisons == ()
    assert result.unjudged == 6


async def test_a_judge_among_the_models_is_told(places) -> None:
    await run_judged(Settings(**places), instances=2)
    result = await compared(places, ArenaRequest(comparisons=0), judge_model="solver")
    assert result.warnings == ("the judge solver compares its own answers: judges tend to prefer what they wrote",)


async def test_what_cannot_be_compared_is_refused_with_a_sentence(places) -> None:
    with pytest.raises(errors.InvalidInputError, match="no model has answers"):
        await compared(places, ArenaRequest())
    await run_judged(Settings(**places), instances=2)
    with pytest.raises(errors.InvalidInputError, match=r"only solver@main has answers"):
        await compared(places, ArenaRequest(models=("solver",)))
    with pytest.raises(errors.InvalidInputError, match="no answer by a model 'nobody'"):
        await compared(places, ArenaRequest(models=("solver", "nobody")))
    with pytest.raises(errors.InvalidRosterError, match="no model 'nobody'"):
        await compared(places, ArenaRequest(models=("solver", "nobody"), instances=1))


def test_who_is_preferred_in_both_orders_wins_and_all_else_is_a_tie() -> None:
    outcomes = {(1.0, 1.0): 1.0, (0.0, 0.0): 0.0, (1.0, 0.0): 0.5, (0.0, 1.0): 0.5, (0.5, 1.0): 0.5, (0.5, 0.5): 0.5}
    assert {values: score_of(values, "").value for values in outcomes} == outcomes
    assert score_of((1.0, 1.0, 1.0, 0.0), "").value == 0.75


def test_a_budget_goes_to_models_that_were_not_compared_and_then_to_close_ones() -> None:
    pairs = [("a@1", "b@1"), ("a@1", "c@1"), ("b@1", "c@1")]
    possible = [Pairing("e", index, one, other) for one, other in pairs for index in range(40)]
    even = [ArenaComparison("e", n, "a@1", other, n % 2, ()) for n in range(20) for other in ("b@1", "c@1")]
    assert {(p.first, p.second) for p in chosen(possible, even, 3, seed="s")} == {("b@1", "c@1")}
    c_is_last = [ArenaComparison("e", n, one, "c@1", 1.0, ()) for n in range(20) for one in ("a@1", "b@1")]
    there = [*(c for c in even if c.second == "b@1"), *c_is_last]
    taken = chosen(possible, there, 9, seed="s")
    assert {(p.first, p.second) for p in taken} == {("a@1", "b@1")}
    assert taken == chosen(list(reversed(possible)), list(reversed(there)), 9, seed="s")
    assert all(p.index >= 20 for p in taken)


def test_judgements_of_an_earlier_judge_are_no_part_of_an_answer() -> None:
    stored = '[["user","Q"],["assistant","A"],["system","Judgement 1: 0.9. Superb."]]'
    answer = answer_of(stored)
    assert answer is not None
    assert (answer.question, answer.text) == ("Q", "A")
    assert answer_of('[["user","Q"]]') is None
