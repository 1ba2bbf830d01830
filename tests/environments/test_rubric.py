"""Rubrics that a user writes: what is refused, and environments judged by one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from headgate.core import errors, seed_of
from headgate.environments import ForJudge, Score, coverage_judge, environment
from headgate.environments.rubric import Criterion, Rubric, RubricEnvironment, load_rubric, rubric_of

WORDS = Rubric(
    name="words",
    criteria=(Criterion(text='says "alpha"', points=3.0), Criterion(text='says "beta"')),
    pass_mark=0.7,
    instructions="Be fair.",
)

FILE = """
name: words
criteria:
  - {text: 'says "alpha"', points: 3}
  - says "beta"
pass_mark: 0.7
instructions: Be fair.
"""


def test_a_file_states_a_rubric(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(FILE)
    assert load_rubric(tmp_path / "r.yaml") == WORDS


def test_a_rubric_that_is_changed_is_another_one() -> None:
    other = WORDS.model_copy(update={"pass_mark": 0.8})
    assert WORDS.label.startswith("words-")
    assert WORDS.label != other.label


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "must be a mapping"),
        ({"name": "r"}, "criteria is missing"),
        ({"name": "r", "criteria": []}, "criteria must have at least 1 item"),
        ({"name": "", "criteria": ["x"]}, "not a usable name"),
        ({"name": "r", "criteria": ["x"], "weight": 1}, "there is no setting weight"),
        ({"name": "r", "criteria": [{"text": "x", "points": 0}]}, "criteria\\[0\\].points must be greater than 0"),
        ({"name": "r", "criteria": [{"text": "x", "points": "many"}]}, "points must be a valid number"),
        ({"name": "r", "criteria": ["one\ntwo"]}, "one line of text"),
        ({"name": "r", "criteria": ["x"], "pass_mark": 2}, "pass_mark must be less than or equal to 1"),
    ],
)
def test_what_is_no_rubric_is_refused_with_the_rule(document: object, says: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=says):
        rubric_of(document)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="cannot be read"):
        load_rubric(tmp_path / "none.yaml")


async def test_an_environment_that_scores_itself_is_judged_by_the_rubric() -> None:
    base = environment("affine:sat")
    under = RubricEnvironment(base, WORDS)
    assert under.spec.name == f"affine:sat/rubric/{WORDS.label}"
    assert under.spec.needs_judge
    episode = await under.open(4, seed=1)
    same = await base.open(4, seed_of("affine:sat", 4))
    assert [m.content for m in episode.opening] == [m.content for m in same.opening]
    end = await episode.answer("It is alpha. And nothing else.")
    assert isinstance(end, ForJudge)
    assert "Be fair." in end.questions[0][0].content
    judgements = [under.judgement(coverage_judge(question)) for question in end.questions]
    assert [one.value for one in judgements if one is not None] == [0.75] * 3
    verdict = under.verdict([one for one in judgements if one is not None])
    assert (verdict.value, verdict.success) == (0.75, True)


async def test_all_that_was_said_over_several_turns_goes_to_the_judge() -> None:
    base = environment("agentgym:textcraft")
    under = RubricEnvironment(base, WORDS)
    episode, rng = await under.open(0, seed=0), random.Random(0)
    conversation = list(episode.opening)
    for turn in range(base.spec.max_rounds):
        reply = await under.baseline("solver", 0, 0, conversation, rng) + f"\nalpha {turn}"
        end = await episode.answer(reply)
        if not isinstance(end, Score | ForJudge):
            conversation.extend(end.messages)
            continue
        assert isinstance(end, ForJudge)
        break
    text = end.questions[0][1].content
    assert "The model:" in text
    assert "The environment:" in text
    assert json.loads(coverage_judge(end.questions[0]))["score"] == 0.75


@pytest.mark.parametrize("reply", ["", "  \n ", "<think>alpha</think>", "x " * 500_000])
async def test_empty_and_huge_answers_need_no_judge(reply: str) -> None:
    episode = await RubricEnvironment(environment("affine:sat"), WORDS).open(0, 0)
    end = await episode.answer(reply)
    assert isinstance(end, Score)
    assert end.value == 0.0
