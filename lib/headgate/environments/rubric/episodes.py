"""Any environment, its episodes judged by a rubric of the user's instead of scored by its own rule."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.core import Message, checked_name, seed_of
from headgate.environments.answers import without_thinking
from headgate.environments.judge_question import judge_question
from headgate.environments.judge_reply import mean_verdict, read_judgement
from headgate.environments.protocol import (
    BaselineKind,
    Continue,
    Environment,
    EnvironmentSpec,
    Episode,
    ForJudge,
    Judgement,
    Score,
)
from headgate.environments.rubric.rubric import Rubric
from headgate.environments.single_turn import failed

ANSWER_CHARS: Final = 60_000
"""A longer answer or conversation is not judged: it costs every judgement its length."""

_QUESTIONS: Final = 3
"""Wordings of one question to a judge: the criteria in another order each."""


class RubricEnvironment:
    """The tasks of another environment under the judgement of a rubric. Implements `JudgedEnvironment`.

    Its name is `ENVIRONMENT/rubric/NAME-DIGEST`, so that its samples are never counted with those that the environment
    scored itself. Tasks and their seeds are the other environment's.
    """

    def __init__(self, base: Environment, rubric: Rubric) -> None:
        self.base = base
        self.rubric = rubric
        self._spec = replace(
            base.spec,
            name=checked_name(f"{base.spec.name}/rubric/{rubric.label}", "environment"),
            summary=f"{base.spec.summary.rstrip('.')}, judged by the rubric {rubric.name}",
            chance_score=None,
            needs_judge=True,
        )

    @property
    def spec(self) -> EnvironmentSpec:
        """What is known of it without running it."""
        return self._spec

    def seed(self, index: int) -> int:
        """Return the seed of a task in the other environment."""
        return seed_of(self.base.spec.name, index)

    async def open(self, index: int, seed: int) -> Episode:
        """Begin task `index` of the other environment."""
        episode = await self.base.open(index, self.seed(index))
        return _RubricEpisode(episode, self.rubric, f"{self.spec.name}/{seed}")

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return what a baseline of the other environment replies."""
        del seed
        return await self.base.baseline(kind, index, self.seed(index), conversation, rng)

    def judgement(self, reply: str) -> Judgement | None:
        """Return what a judge's reply says."""
        return read_judgement(reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the mean of the judgements."""
        return mean_verdict(judgements, pass_mark=self.rubric.pass_mark)


class _RubricEpisode:
    """An episode of the other environment, whose end goes to a judge with all that was said."""

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
    """Return what was said after the opening: a reply as it is, a longer conversation with a line for who speaks."""
    if len(said) == 1:
        return said[0].content
    names = {"assistant": "The model"}
    return "\n\n".join(f"{names.get(message.role, 'The environment')}:\n{message.content}" for message in said)
