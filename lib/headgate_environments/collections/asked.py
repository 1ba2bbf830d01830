"""Environments of packages that ask the model themselves, with what holds for all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final, Protocol

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, Score
from headgate_environments.collections.resumed import Ask, ResumedEpisode

REPLY_CHARS: Final = 100_000
"""Longer replies score 0 unread: the scorers of others need not be made for them."""

MAX_ROUNDS: Final = 30
"""Replies where the package sets no bound of its own."""

_WORD: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]+")


class Tasks(Protocol):
    """The tasks of one environment of a package."""

    async def play(self, index: int, ask: Ask) -> Score:
        """Play task `index` to its end, asking the model through `ask`."""
        ...

    def target(self, index: int) -> str:
        """Return the answer that the package states for task `index`; empty where it states none."""
        ...


class AskedEnvironment:
    """A list of tasks, each played by a coroutine of its package. Lives as long as its collection's user.

    `random` replies with a word of what was said last, `greedy` with its last word or number, `solver` with the target
    that the package states, which is a solution only where the answer alone is asked for: `spec.solver_rate` is 0.
    """

    def __init__(self, spec: EnvironmentSpec, tasks: Tasks) -> None:
        self.spec = spec
        self._tasks = tasks

    async def open(self, index: int, seed: int) -> ResumedEpisode:
        """Begin task `index`; `seed` is not used, as the package's tasks are listed.

        Raises:
            EnvironmentFailedError: if it ends before the model was asked anything.
        """
        del seed
        return await ResumedEpisode.begun(lambda ask: self._tasks.play(index, ask))

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply as the class says."""
        del seed
        if kind == "solver":
            return self._tasks.target(index)
        words: list[str] = _WORD.findall(conversation[-1].content) or ["0"]
        return words[-1] if kind == "greedy" else rng.choice(words)
