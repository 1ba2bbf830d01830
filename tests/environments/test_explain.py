"""The environment whose answers a judge reads."""

from __future__ import annotations

import json
import random

import pytest

from headgate.core import ChatError, ChatReply, ErrorKind, Message, errors, seed_of
from headgate.environments import EnvironmentSpec, ForJudge, Judgement, Score, converse, coverage_judge, measure
from headgate.environments.judge_questions import judge_question, judged_score, read_reply
from headgate_environments.explain import ANSWER_CHARS, FAULTS, PARTS, explain, incident, points_of, reference_of

NAME = "headgate:explain"


async def judged(answer: str, index: int = 3) -> Score | ForJudge:
    """What the environment makes of an answer."""
    return await (await explain().open(index, seed_of(NAME, index))).answer(answer)


@pytest.mark.parametrize("answer", ["", "  \n", "...", "<think>it was the ledger</think>"])
async def test_an_empty_answer_scores_0_without_a_judge(answer: str) -> None:
    score = await judged(answer)
    assert isinstance(score, Score)
    assert (score.value, score.why) == (0.0, "the answer is empty")


async def test_a_huge_answer_and_an_echo_score_0_without_a_judge() -> None:
    huge = await judged("word " * ANSWER_CHARS)
    assert isinstance(huge, Score)
    assert huge.value == 0.0
    episode = await explain().open(3, seed_of(NAME, 3))
    echo = await episode.answer(f"You said: {episode.opening[0].content}")
    assert isinstance(echo, Score)
    assert (echo.value, echo.why) == (0.0, "the answer repeats the notes")


async def test_any_other_answer_is_for_judges_who_see_the_rubric_and_the_answer_without_its_thoughts() -> None:
    asked = await judged("<think>hm</think>Because of the rain.")
    assert isinstance(asked, ForJudge)
    assert len(set(asked.questions)) == 3
    for question in asked.questions:
        assert [message.role for message in question] == ["system", "user"]
        assert "Because of the rain." in question[1].content
        assert "hm</think>" not in question[1].content
        assert all(point in question[1].content for point in points_of(incident(seed_of(NAME, 3))))


def test_an_incident_has_one_way_from_its_cause_to_the_complaint() -> None:
    for seed in range(200):
        task = incident(seed)
        parts = [event.part for event in task.chain]
        needs = dict(task.needs)
        assert len({*parts, task.unrelated.part}) == len(parts) + 1, seed
        way = [parts[-1]]
        while way[-1] in needs:
            way.append(needs[way[-1]])
        assert way == parts[::-1], seed
        assert [event.minute for event in task.chain] == sorted(event.minute for event in task.chain), seed
        assert task.unrelated.minute < task.chain[-1].minute, seed
        assert all(f"The {part} needs the {needed}." in task.notes for part, needed in task.needs), seed


def test_no_name_is_part_of_another_one() -> None:
    for names in (PARTS, FAULTS):
        assert [(a, b) for a in names for b in names if a != b and a in b] == []


def test_the_reference_meets_every_point() -> None:
    for seed in range(200):
        task = incident(seed)
        question = judge_question("Q", "R", points_of(task), reference_of(task), secret="s")
        assert json.loads(coverage_judge(question))["score"] == 1.0


async def test_solver_beats_greedy_beats_random() -> None:
    measured = await measure(NAME, 60)
    scores = {baseline.kind: baseline.mean_score for baseline in measured.baselines}
    assert scores["solver"] == 1.0
    assert 0.8 > scores["greedy"] > 0.3 > scores["random"]
    assert all(baseline.errors == 0 for baseline in measured.baselines)


async def test_an_episode_ends_with_questions_and_without_a_score() -> None:
    async def chat(messages: object) -> ChatReply:
        return ChatReply("Because of the rain.", prompt_tokens=7, completion_tokens=3)

    result = await converse(explain(), 3, seed_of(NAME, 3), chat)
    assert (result.score, result.error_kind, result.error) == (None, None, None)
    assert len(result.questions) == 3
    assert (result.prompt_tokens, result.turns) == (7, 1)


async def test_a_failed_model_leaves_nothing_to_judge() -> None:
    async def chat(messages: object) -> ChatReply:
        raise ChatError(ErrorKind.AUTH, "no")

    result = await converse(explain(), 3, seed_of(NAME, 3), chat)
    assert (result.error_kind, result.questions) == (ErrorKind.AUTH, ())


class _Asks:
    """An episode that asks for a judge in one way or another."""

    opening = (Message("user", "?"),)

    def __init__(self, questions: object) -> None:
        self._questions = questions

    async def answer(self, reply: str) -> ForJudge:
        return ForJudge(self._questions)  # type: ignore[arg-type]

    async def close(self) -> None:
        pass


class _Odd:
    """An environment that does one thing wrong."""

    def __init__(self, questions: object = (), needs_judge: bool = True, made: object = None) -> None:
        self.spec = EnvironmentSpec("test:odd", "odd", daily_rate=1, data_length=1, needs_judge=needs_judge)
        self._questions = questions
        self._made = made

    async def open(self, index: int, seed: int) -> _Asks:
        return _Asks(self._questions)

    async def baseline(self, kind: object, index: int, seed: int, conversation: object, rng: random.Random) -> str:
        return "x"

    def judgement(self, reply: str) -> object:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made

    def verdict(self, judgements: object) -> object:
        return self.judgement("")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (_Odd(((Message("user", "?"),),), needs_judge=False), "does not say needs_judge=True"),
        (_Odd(()), "without a question"),
        (_Odd(((),)), "without a question"),
        (_Odd((("?",),)), "not a Message with text"),
        (_Odd(7), "TypeError"),
    ],
)
async def test_an_environment_that_asks_in_a_wrong_way_is_at_fault(odd: _Odd, why: str) -> None:
    async def chat(messages: object) -> ChatReply:
        return ChatReply("x")

    result = await converse(odd, 0, 0, chat)  # type: ignore[arg-type]
    assert result.error_kind is ErrorKind.ENVIRONMENT
    assert why in str(result.error)


@pytest.mark.parametrize(
    "made", [KeyError("x"), Judgement(1.5, ""), "0.5", Judgement("0.5", ""), Judgement(float("nan"), ""), SystemExit(2)]
)
def test_an_environment_that_misreads_a_judge_is_at_fault(made: object) -> None:
    with pytest.raises(errors.EnvironmentFailedError, match="failed on a judge's reply"):
        read_reply(_Odd(made=made), "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [KeyError("x"), 0.5, Score(1.5, success=True, why=""), Score(0.5, True, None)])  # type: ignore[arg-type]
def test_an_environment_that_makes_no_score_is_at_fault(made: object) -> None:
    with pytest.raises(errors.EnvironmentFailedError, match="failed on a judge's reply"):
        judged_score(_Odd(made=made), [Judgement(1.0, "")])  # type: ignore[arg-type]
