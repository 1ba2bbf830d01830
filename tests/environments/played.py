"""Episodes that are played with replies made elsewhere, and judged as measurements judge them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

from headgate.core import ChatReply, seed_of
from headgate.environments import Environment, EpisodeResult, JudgedEnvironment, converse, coverage_judge
from headgate.environments.judge_questions import judged_score, read_reply


async def score_of(environment: Environment, index: int, replies: Iterable[str]) -> float:
    """Return what `replies` score on a task, the last one repeated to the end; no score at all is a failure."""
    result = await _played(environment, index, replies)
    if result.questions:
        return _judged(environment, result)
    assert result.score is not None, result.error
    return result.score


async def prompt_of(environment: Environment, index: int) -> str:
    """Return the opening of a task as one text."""
    episode = await environment.open(index, seed_of(environment.spec.name, index))
    await episode.close()
    return "\n".join(message.content for message in episode.opening)


async def solution_of(environment: Environment, index: int) -> list[str]:
    """Return what the solver replies to a task."""
    name = environment.spec.name
    rng = random.Random(index)

    async def chat(messages):
        return ChatReply(await environment.baseline("solver", index, seed_of(name, index), messages, rng))

    result = await converse(environment, index, seed_of(name, index), chat)
    assert result.error is None
    return [message.content for message in result.messages if message.role == "assistant"]


async def _played(environment: Environment, index: int, replies: Iterable[str]) -> EpisodeResult:
    following = _and_so_on(replies)

    async def chat(messages):
        del messages
        return ChatReply(next(following))

    return await converse(environment, index, seed_of(environment.spec.name, index), chat)


def _and_so_on(replies: Iterable[str]) -> Iterator[str]:
    told = list(replies)
    return itertools.chain(told, itertools.repeat(told[-1]))


def _judged(environment: Environment, result: EpisodeResult) -> float:
    assert isinstance(environment, JudgedEnvironment)
    judgement = read_reply(environment, coverage_judge(result.questions[0]))
    assert judgement is not None
    return judged_score(environment, [judgement]).value
