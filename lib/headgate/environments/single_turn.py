"""Episodes of one question and one answer, which most environments are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headgate.core import Message
from headgate.environments.protocol import Score


@dataclass(frozen=True, slots=True)
class SingleTurnEpisode:
    """An episode that ends with its first answer. Holds nothing that needs closing.

    Attributes:
        opening: the question.
        judge: gives the answer its score.
    """

    opening: tuple[Message, ...]
    judge: Callable[[str], Awaitable[Score]]

    async def answer(self, reply: str) -> Score:
        """Return the score of `reply`."""
        return await self.judge(reply)

    async def close(self) -> None:
        """Free nothing."""


def question(text: str) -> tuple[Message, ...]:
    """Return `text` as the opening of an episode."""
    return (Message("user", text),)


def passed(why: str) -> Score:
    """Return the full score."""
    return Score(1.0, success=True, why=why)


def failed(why: str) -> Score:
    """Return the score of a wrong answer."""
    return Score(0.0, success=False, why=why)
