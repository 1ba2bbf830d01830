"""`textworld-express:<game>`: eight small text games, played in separate Java virtual machines."""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.core import Message
from headgate.core.errors import MissingExtraError
from headgate.environments import BaselineKind, EnvironmentSpec, Score, TaskCache, java_runtime
from headgate_environments.collections.members import ListedCollection
from headgate_environments.collections.textworld_game import View, chosen_action, likeliest, told_actions
from headgate_environments.java import Loan, Pool
from headgate_environments.text_game import GameEpisode, TextGame, next_action

if TYPE_CHECKING:
    from headgate_environments.collections.textworld_game import TextWorld

PREFIX: Final = "textworld-express"

DATA_LENGTH: Final = 1_000
"""Seeds 0 to 999: the package's training fold. Its other folds, 2 000 seeds from 1 000 on, are never used."""

EPISODE_TIMEOUT_S: Final = 1_800.0
"""Enough for fifty replies of a slow model."""

GAMES: Final = 4
"""Maximum number of virtual machines for episodes, of 160 MB each."""

SOLVERS: Final = 1
"""Virtual machines that only look up solutions, kept apart: an episode that holds a game may wait for one of them."""

_INSTRUCTIONS: Final = """\
You are playing a text game. Each round you take one of the actions that are listed as available, and are told what \
came of it. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

Task: {task}

{view}"""


@dataclass(frozen=True, slots=True)
class Rules:
    """One game: the model's task, its maximum number of replies, and the measured scores of its baselines."""

    asks: str
    max_rounds: int
    chance_score: float
    solver_rate: float


RULES: Final = {
    "arithmetic": Rules("solve a problem of arithmetic and put so many things into a box", 10, 0.0, 0.95),
    "coin": Rules("find a coin in a house of eleven rooms", 40, 0.233, 0.95),
    "cookingworld": Rules("gather what a recipe asks for in eleven rooms, cook and eat it", 50, 0.079, 0.7),
    "mapreader": Rules("fetch a coin from a room that a map leads to", 20, 0.083, 0.95),
    "peckingorder": Rules("follow instructions that change after every step", 20, 0.067, 0.95),
    "simonsays": Rules("do what Simon says, five times", 10, 0.0, 0.95),
    "sorting": Rules("put things into a box, the smallest first", 20, 0.033, 0.95),
    "twc": Rules("put four things where they belong", 30, 0.079, 0.95),
}
"""The games with the package's own settings. Rounds are 1.5 times what most of its solutions, which explore, take.

Scores are means over tasks 0 to 29. On these, the rule of thumb scores 0.500, 0.600, 0.171, 0.383, 1.0, 1.0, 0.167 and
0.121, in this order, and the solution 1.0, except 0.895 in cookingworld, where it is too long in 6 of the 30 tasks.
"""


class TextWorldEpisode(GameEpisode):
    """One game in progress; holds a virtual machine until it is closed."""

    def __init__(self, name: str, max_rounds: int, game: Loan[TextWorld], task: str, view: View) -> None:
        super().__init__(_INSTRUCTIONS.format(rounds=max_rounds, task=task, view=view.text()))
        self._name = name
        self._max_rounds = max_rounds
        self._game = game
        self._view = view

    async def close(self) -> None:
        """Give the virtual machine back."""
        self._game.close()

    async def _outcome(self, reply: str) -> str | Score:
        """Take the action in `reply`, in a thread; takes a millisecond."""
        action, problem = chosen_action(reply, self._view.available)
        if action is not None:
            self._view = await self._game.call(lambda game: game.step(action))
        is_over = self._view.is_over or self.rounds >= self._max_rounds
        return self._scored() if is_over else f"{problem}{self._view.text()}"

    def _scored(self) -> Score:
        value = min(1.0, max(0.0, self._view.score))
        return Score(value, success=value >= 1.0, why=f"{self._name}: {value:.0%} done, rounds={self.rounds}")


class TextWorldEnvironment(TextGame):
    """One game of TextWorldExpress. Tasks depend only on the index, which is the game's seed."""

    def __init__(self, game: str, games: Pool[TextWorld], solvers: Pool[TextWorld]) -> None:
        self._game = game
        self._games = games
        self._solvers = solvers
        self._solutions = TaskCache(self._solution)
        rules = RULES[game]
        self.spec = EnvironmentSpec(
            name=f"{PREFIX}:{game}",
            summary=f"In a text game, {rules.asks}, in up to {rules.max_rounds} rounds",
            daily_rate=100.0,
            data_length=DATA_LENGTH,
            max_rounds=rules.max_rounds,
            timeout_s=EPISODE_TIMEOUT_S,
            licence="Apache-2.0",
            source=f"{game} of the package textworld-express (Apache-2.0), training fold",
            chance_score=rules.chance_score,
            solver_rate=rules.solver_rate,
            tasks_are_drawn=True,
        )

    async def _begun(self, index: int) -> TextWorldEpisode:
        loan, (task, view) = await self._games.begun(lambda game: game.begin(self._game, index % DATA_LENGTH))
        return TextWorldEpisode(self.spec.name, self.spec.max_rounds, loan, task, view)

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        action = rng.choice(told_actions(conversation[-1].content))
        if kind == "greedy":
            return likeliest(conversation)
        solution = await self._solutions.get(index, 0) if kind == "solver" else ()
        return next_action(solution, conversation, action)

    async def _solution(self, index: int, seed: int) -> tuple[str, ...]:
        del seed
        return await self._solvers.asked(lambda game: game.solution(self._game, index % DATA_LENGTH))


class TextWorldExpress(ListedCollection):
    """The games of TextWorldExpress."""

    prefix = PREFIX
    summary = "Eight small text games: find, fetch, sort, cook, follow instructions"
    extra = PREFIX

    def __init__(self) -> None:
        self._games = Pool(_started, GAMES)
        self._solvers = Pool(_started, SOLVERS)

    def _members(self) -> Iterable[str]:
        if any(importlib.util.find_spec(module) is None for module in ("textworld_express", "py4j")):
            raise MissingExtraError(f"collection {PREFIX!r}", PREFIX)
        java_runtime()
        return RULES

    def _made(self, member: str) -> TextWorldEnvironment:
        return TextWorldEnvironment(member, self._games, self._solvers)


def textworld_express() -> TextWorldExpress:
    """Return the collection `textworld-express`."""
    return TextWorldExpress()


def _started() -> TextWorld:
    """Start a game; its module is imported here since it needs optional packages."""
    game: TextWorld = importlib.import_module("headgate_environments.collections.textworld_game").TextWorld()
    return game
