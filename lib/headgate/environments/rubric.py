"""A rubric: a user's criteria for answers, from a file or a block, and an environment that is judged by it."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from headgate.core import Message, checked_name, seed_of
from headgate.core.documents import read_document
from headgate.core.errors import InvalidInputError
from headgate.core.flaws import flaws_raised, text_like
from headgate.environments.answers import without_thinking
from headgate.environments.judge_questions import judge_question, mean_verdict, read_judgement
from headgate.environments.protocol import BaselineKind, Continue, Environment, Episode, ForJudge, Judgement, Score
from headgate.environments.single_turn import failed

ANSWER_CHARS: Final = 60_000
"""A longer answer or conversation is not judged, since every judgement pays for its length."""

_QUESTIONS: Final = 3
"""Variants of one question to a judge, each with the criteria in a different order."""

_NEXT: Final = "A rubric has a name, criteria (each a text, or text and points), pass_mark and instructions."

_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=4_000)]


class Criterion(BaseModel):
    """One criterion: a sentence about the answer, and its weight relative to the others."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    text: Annotated[_Text, AfterValidator(text_like(r".+", "must be one line of text"))]
    points: Annotated[float, Field(gt=0)] = 1.0


_Criterion = Annotated[Criterion, BeforeValidator(lambda value: {"text": value} if isinstance(value, str) else value)]


class Rubric(BaseModel):
    """What a judge looks for.

    Attributes:
        name: part of the environment name under which samples are counted.
        criteria: what counts; a word in double quotes is one that a good answer uses.
        pass_mark: minimum share of the points for a success.
        instructions: further instructions to the judge.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(partial(checked_name, what="rubric"))]
    criteria: Annotated[tuple[_Criterion, ...], Field(min_length=1, max_length=50)]
    pass_mark: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.7
    instructions: _Text = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Text of each criterion."""
        return tuple(criterion.text for criterion in self.criteria)

    @property
    def weights(self) -> tuple[float, ...]:
        """Points of each criterion."""
        return tuple(criterion.points for criterion in self.criteria)

    @property
    def label(self) -> str:
        """The name and a digest of everything else, so that a changed rubric counts as another one."""
        parts = [*(f"{c.points:g} {c.text}" for c in self.criteria), f"{self.pass_mark:g}", self.instructions]
        return f"{self.name}-{hashlib.blake2b(chr(0).join(parts).encode(), digest_size=3).hexdigest()}"


def rubric_of(document: object) -> Rubric:
    """Return the rubric in a document: a mapping with `name`, `criteria` and optional fields.

    Raises:
        InvalidInputError: if it breaks a rule of rubrics.
    """
    with flaws_raised(Rubric, InvalidInputError, "rubric: ", next_step=_NEXT):
        return Rubric.model_validate(document)


def load_rubric(path: Path) -> Rubric:
    """Return the rubric in a YAML or JSON file.

    Raises:
        InvalidInputError: if the file cannot be read, or breaks a rule of rubrics.
    """
    return rubric_of(read_document(path, what="rubric", next_step=_NEXT))


class RubricEnvironment:
    """The tasks of another environment, judged by a rubric. Implements `JudgedEnvironment`.

    Its name is `ENVIRONMENT/rubric/NAME-DIGEST`, so that its samples are never counted with those that the environment
    scored itself. Tasks and their seeds are those of the other environment.
    """

    def __init__(self, base: Environment, rubric: Rubric) -> None:
        self.base = base
        self.rubric = rubric
        self.spec = replace(
            base.spec,
            name=checked_name(f"{base.spec.name}/rubric/{rubric.label}", "environment"),
            summary=f"{base.spec.summary.rstrip('.')}, judged by the rubric {rubric.name}",
            chance_score=None,
            needs_judge=True,
        )

    def seed(self, index: int) -> int:
        """Return the seed of a task in the other environment."""
        return seed_of(self.base.spec.name, index)

    async def open(self, index: int, seed: int) -> Episode:
        """Start task `index` of the other environment."""
        episode = await self.base.open(index, self.seed(index))
        return _RubricEpisode(episode, self.rubric, f"{self.spec.name}/{seed}")

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return the reply of the other environment's baseline."""
        del seed
        return await self.base.baseline(kind, index, self.seed(index), conversation, rng)

    def judgement(self, reply: str) -> Judgement | None:
        """Return the judgement in a judge's reply, None if it cannot be read."""
        return read_judgement(reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the mean of the judgements."""
        return mean_verdict(judgements, pass_mark=self.rubric.pass_mark)


class _RubricEpisode:
    """An episode of the other environment that ends with the whole conversation before a judge."""

    def __init__(self, episode: Episode, rubric: Rubric, secret: str) -> None:
        self._episode = episode
        self._rubric = rubric
        self._secret = secret
        self.opening = tuple(episode.opening)
        self._said: list[Message] = []

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        end = await self._episode.answer(reply)
        self._said.append(Message("assistant", without_thinking(reply).strip()))
        if isinstance(end, Continue):
            self._said.extend(end.messages)
            return end
        answer = transcript(self._said)
        if not any(re.search(r"\w", message.content) for message in self._said if message.role == "assistant"):
            return failed("the answer is empty")
        if len(answer) > ANSWER_CHARS:
            return failed(f"the answer has {len(answer)} characters, at most {ANSWER_CHARS} are judged")
        return ForJudge(tuple(self._asked(answer, turn) for turn in range(_QUESTIONS)))

    async def close(self) -> None:
        await self._episode.close()

    def _asked(self, answer: str, turn: int) -> tuple[Message, ...]:
        return judge_question(
            "\n\n".join(message.content for message in self.opening),
            "",
            self._rubric.texts,
            answer,
            secret=self._secret,
            turned_by=turn,
            weights=self._rubric.weights,
            instructions=self._rubric.instructions,
        )


def transcript(said: Sequence[Message]) -> str:
    """Return the messages after the opening as text: a single reply unchanged, several with the speaker of each."""
    if len(said) == 1:
        return said[0].content
    names = {"assistant": "The model"}
    return "\n\n".join(f"{names.get(message.role, 'The environment')}:\n{message.content}" for message in said)
