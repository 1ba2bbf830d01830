"""What text games share: one action per reply, counted rounds, and baselines that name an action."""

from __future__ import annotations

import abc
import random
from collections.abc import Sequence

from headgate.core import Message
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, Score


class GameEpisode(abc.ABC):
    """One game in progress. Owned by one worker; holds memory only, unless `close` says otherwise.

    Attributes:
        opening: the rules and the task.
        rounds: replies so far.
    """

    def __init__(self, text: str) -> None:
        self.opening = (Message("user", text),)
        self.rounds = 0

    async def answer(self, reply: str) -> Continue | Score:
        """Take the action in `reply`; return its outcome, or the score if the game has ended."""
        self.rounds += 1
        outcome = await self._outcome(reply)
        return outcome if isinstance(outcome, Score) else Continue((Message("user", outcome),))

    async def close(self) -> None:  # noqa: B027 - most games hold nothing
        """Free nothing."""

    @abc.abstractmethod
    async def _outcome(self, reply: str) -> str | Score:
        """Take the action in `reply`; return the message to the model, or the score."""


class TextGame(abc.ABC):
    """An environment of text games. Its tasks depend on the index alone."""

    spec: EnvironmentSpec

    async def open(self, index: int, seed: int) -> GameEpisode:
        """Begin task `index`; `seed` is not used.

        Raises:
            EnvironmentFailedError: if the game cannot begin.
        """
        del seed
        return await self._begun(index)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a random action, that of a rule of thumb (`greedy`), or the next one of a solution."""
        del seed
        return f"Thought: {kind}\nAction: {await self._action(kind, index, conversation, rng)}"

    @abc.abstractmethod
    async def _begun(self, index: int) -> GameEpisode:
        """Return an episode of task `index`."""

    @abc.abstractmethod
    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        """Return the action of a baseline."""


def actions_in(conversation: Sequence[Message]) -> list[str]:
    """Return the actions that a baseline has taken so far."""
    return [message.content.rpartition("Action: ")[2] for message in conversation if message.role == "assistant"]


def next_action(solution: Sequence[str], conversation: Sequence[Message], otherwise: str) -> str:
    """Return the next action of a solution, or `otherwise` after its end."""
    turn = sum(message.role == "assistant" for message in conversation)
    return solution[turn] if turn < len(solution) else otherwise
