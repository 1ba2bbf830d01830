"""`headgate arena` over a store that another command filled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.storage import open_store
from tests.cli.conftest import Command
from tests.storage.samples import sample

JUDGE = ("--judge-model", "nobody", "--judge-url", "http://127.0.0.1:9/v1")


@pytest.fixture
async def store(tmp_path: Path) -> None:
    """Two models that answered five tasks alike."""
    said = json.dumps([["user", "Why?"], ["assistant", "Because."]])
    rows = [
        sample(n, index=n, model=f"{model}@main", environment="headgate:explain", conversation=said, score=1.0)
        for model in ("one", "other")
        for n in range(5)
    ]
    opened = open_store(str(tmp_path / ".headgate" / "samples"))
    await opened.put_batch("b-1", rows)
    opened.close()


def test_equal_answers_tie_without_a_judge_and_are_shown_as_table_and_json(headgate: Command, store: None) -> None:
    said = headgate("arena", *JUDGE)
    assert "5 of 5 possible comparisons by nobody, 5 of them new" in said.out
    assert "one@main" in said.out
    document = json.loads(headgate("arena", *JUDGE, "--comparisons", "0", "--json").out)
    assert (document["comparisons"], document["new"]) == (5, 0)
    assert [one["rating"] for one in document["models"]] == [1_000.0, 1_000.0]
    assert document["judge"]["orders"] == 0


def test_what_cannot_be_compared_is_a_sentence(headgate: Command, store: None) -> None:
    said = headgate("arena", *JUDGE, "--model", "one,nobody")
    assert said.status == 2
    assert "the store has no answer by a model 'nobody'" in said.err
    assert "There are answers by one@main, other@main." in said.err, "all that the store has, not those named"
    assert "--instances must be >= 1 (got 0)" in headgate("arena", *JUDGE, "--instances", "0").err
    assert "setting 'judge_model' is empty" in headgate("arena").err


def test_what_there_is_is_shown_without_a_judge_unless_several_have_compared(headgate: Command, store: None) -> None:
    nothing = headgate("arena", "--comparisons", "0")
    assert nothing.status == 2
    assert "the store has no comparisons of campaign 'main'" in nothing.err
    headgate("arena", *JUDGE)
    assert "5 of 5 possible comparisons by nobody, 0 of them new" in headgate("arena", "--comparisons", "0").out
    headgate("arena", "--judge-model", "org/second", *JUDGE[2:])
    several = headgate("arena", "--comparisons", "0")
    assert several.status == 2
    assert "comparisons by 2 judges or rubrics: nobody, org/second" in several.err
    named = headgate("arena", "--comparisons", "0", "--judge-model", "org/second")
    assert "5 of 5 possible comparisons by org/second, 0 of them new" in named.out
