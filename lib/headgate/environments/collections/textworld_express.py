"""`textworld-express:<game>`: eight small text games, played in Java virtual machines of their own."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError, MissingExtraError
from headgate.environments.answers import named_actions
from headgate.environments.collections.members import member_of, unknown
from headgate.environments.java import java_runtime
from headgate.environments.java_pool import Loan, Pool
from headgate.environments.protocol import BaselineKind, Continue, EnvironmentSpec, Score
from headgate.environments.task_cache import TaskCache

if TYPE_CHECKING:
    from headgate.environments.java_process import JavaProcess

PREFIX: Final = "textworld-express"

DATA_LENGTH: Final = 1_000
"""Seeds 0 to 999: the package's training fold. Its other folds, 2 000 seeds from 1 000 on, are never asked for."""

EPISODE_TIMEOUT_S: Final = 1_800.0
"""Fifty replies of a slow model."""

GAMES: Final = 4
"""Virtual machines for episodes at most, of 160 MB each."""

SOLVERS: Final = 1
"""Those that only look up solutions, apart from the others: an episode that holds a game may wait for one of them."""

_FOLD: Final = "train"
_ACTION_CHARS: Final = 200
_AVAILABLE: Final = "Available actions: "
_VERBS: Final = ("take", "open", "move")
"""In the order in which the rule of thumb takes them; what shows nothing new comes last."""

_INSTRUCTIONS: Final = """\
You are playing a text game. Each round you take one of the actions that are listed as available, and are told what \
came of it. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

Task: {task}

{view}"""


@dataclass(frozen=True, slots=True)
class Rules:
    """One game: what the model has to do, its replies at most, and what its baselines were measured to score."""

    asks: str
    max_rounds: int
    chance_score: float
    solver_rate: float


RULES: Final = {
    "arithmetic": Rules("solve a problem of arithmetic and put so many things into a box", 10, 0.008, 0.95),
    "coin": Rules("find a coin in a house of eleven rooms", 40, 0.217, 0.95),
    "cookingworld": Rules("gather what a recipe asks for in eleven rooms, cook and eat it", 50, 0.076, 0.7),
    "mapreader": Rules("fetch a coin from a room that a map leads to", 20, 0.05, 0.95),
    "peckingorder": Rules("follow instructions that change after every step", 20, 0.033, 0.95),
    "simonsays": Rules("do what Simon says, five times", 10, 0.0, 0.95),
    "sorting": Rules("put things into a box, the smallest first", 20, 0.017, 0.95),
    "twc": Rules("put four things where they belong", 30, 0.073, 0.95),
}
"""The games with the package's own settings. Rounds are half more than most of its solutions take, which explore."""


@dataclass(frozen=True, slots=True)
class View:
    """What the game says after a step."""

    said: str
    available: tuple[str, ...]
    score: float
    is_over: bool

    def text(self) -> str:
        """Return it as the model is told."""
        return f"{self.said}\n{_AVAILABLE}{json.dumps(self.available)}"


class TextWorld:
    """One virtual machine in which one game at a time is under way: its games share state. Its calls block."""

    def __init__(self) -> None:
        """Start it; blocks for a second.

        Raises:
            EnvironmentFailedError: if it does not start.
        """
        package = importlib.util.find_spec("textworld_express")
        assert package is not None  # looked for when the environment was made
        assert package.origin is not None
        # Loaded here since it needs an optional package.
        java_process = importlib.import_module("headgate.environments.java_process")
        jar = Path(package.origin).with_name("textworld-express.jar")
        self._java: JavaProcess = java_process.JavaProcess(jar)
        self._game = self._java.call(lambda jvm: jvm.textworldexpress.runtime.PythonInterface())

    @property
    def is_alive(self) -> bool:
        """Whether its virtual machine has not ended."""
        return self._java.is_alive

    def kill(self) -> None:
        """End its virtual machine."""
        self._java.kill()

    def begin(self, game: str, seed: int) -> tuple[str, View]:
        """Begin a game; return its task and what is seen first."""
        first = self._java.call(lambda _: self._made(game, seed, with_solution=False))
        return self._java.call(lambda _: str(self._game.getTaskDescription())).strip(), _view(first)

    def step(self, action: str) -> View:
        """Take one of the available actions."""
        return _view(self._java.call(lambda _: str(self._game.stepJSON(action))))

    def solution(self, game: str, seed: int) -> tuple[str, ...]:
        """Return the actions of the package's own solution, which explores as it likes."""
        self._java.call(lambda _: self._made(game, seed, with_solution=True))
        return self._java.texts(lambda _: self._game.getGoldActionSequence())

    def _made(self, game: str, seed: int, *, with_solution: bool) -> str:
        problem = self._game.load(game, "")
        return str(problem or self._game.generateNewGameJSON(seed, _FOLD, with_solution))


class TextWorldEpisode:
    """One game under way. Owned by one worker; holds a virtual machine until it is closed."""

    def __init__(self, name: str, max_rounds: int, game: Loan[TextWorld], task: str, view: View) -> None:
        self._name = name
        self._max_rounds = max_rounds
        self._game = game
        self._view = view
        self._rounds = 0
        text = _INSTRUCTIONS.format(rounds=max_rounds, task=task, view=view.text())
        self._opening = (Message("user", text),)

    @property
    def opening(self) -> tuple[Message, ...]:
        """The rules, the task and what is seen first."""
        return self._opening

    async def answer(self, reply: str) -> Continue | Score:
        """Take the action in `reply`; in a thread, a millisecond."""
        self._rounds += 1
        action, problem = chosen_action(reply, self._view.available)
        if action is not None:
            self._view = await self._game.call(lambda game: game.step(action))
        if self._view.is_over or self._rounds >= self._max_rounds:
            return self._scored()
        return Continue((Message("user", f"{problem}{self._view.text()}"),))

    async def close(self) -> None:
        """Give the virtual machine back."""
        self._game.close()

    def _scored(self) -> Score:
        value = min(1.0, max(0.0, self._view.score))
        return Score(value, success=value >= 1.0, why=f"{self._name}: {value:.0%} done, rounds={self._rounds}")


class TextWorldEnvironment:
    """One game of TextWorldExpress. Tasks depend on the index alone, which is the game's seed."""

    def __init__(self, game: str, games: Pool[TextWorld], solvers: Pool[TextWorld]) -> None:
        self._game = game
        self._games = games
        self._solvers = solvers
        self._solutions = TaskCache(self._solution)
        rules = RULES[game]
        self._spec = EnvironmentSpec(
            name=f"{PREFIX}:{game}",
            summary=f"In a text game, {rules.asks}, in up to {rules.max_rounds} rounds",
            daily_rate=100.0,
            data_length=DATA_LENGTH,
            max_rounds=rules.max_rounds,
            timeout_s=EPISODE_TIMEOUT_S,
            source=f"{game} of the package textworld-express (Apache-2.0), training fold",
            chance_score=rules.chance_score,
            solver_rate=rules.solver_rate,
            tasks_are_drawn=True,
        )

    @property
    def spec(self) -> EnvironmentSpec:
        """What is known of it without running it."""
        return self._spec

    async def open(self, index: int, seed: int) -> TextWorldEpisode:
        """Begin task `index`; `seed` is not used.

        Raises:
            EnvironmentFailedError: if the virtual machine does not start, or fails.
        """
        del seed
        loan = await self._games.lend()
        try:
            task, view = await loan.call(lambda game: game.begin(self._game, index % DATA_LENGTH))
        except BaseException:
            loan.close()
            raise
        return TextWorldEpisode(self._spec.name, self._spec.max_rounds, loan, task, view)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with any available action, the one most like the text (`greedy`), or the next of the solution."""
        available: list[str] = json.loads(conversation[-1].content.rpartition(_AVAILABLE)[2])
        action = rng.choice(available)
        if kind == "greedy":
            action = _likeliest(available, conversation)
        elif kind == "solver":
            solution = await self._solutions.get(index, seed)
            turn = sum(message.role == "assistant" for message in conversation)
            action = solution[turn] if turn < len(solution) else action
        return f"Thought: {kind}\nAction: {action}"

    async def _solution(self, index: int, seed: int) -> tuple[str, ...]:
        del seed
        loan = await self._solvers.lend()
        try:
            return await loan.call(lambda game: game.solution(self._game, index % DATA_LENGTH))
        finally:
            loan.close()


class TextWorldExpress:
    """The games of TextWorldExpress."""

    prefix = PREFIX
    summary = "Eight small text games: find, fetch, sort, cook, follow instructions"
    extra = PREFIX

    def __init__(self) -> None:
        self._games = Pool(TextWorld, GAMES)
        self._solvers = Pool(TextWorld, SOLVERS)

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments, sorted.

        Raises:
            MissingExtraError: if textworld-express is not installed.
            EnvironmentFailedError: if there is no Java runtime; says what to install.
        """
        if any(importlib.util.find_spec(module) is None for module in ("textworld_express", "py4j")):
            raise MissingExtraError(f"collection {PREFIX!r}", PREFIX)
        java_runtime()
        return tuple(f"{PREFIX}:{game}" for game in sorted(RULES))

    def environment(self, name: str) -> TextWorldEnvironment:
        """Make the environment `name`.

        Raises:
            UnknownEnvironmentError: if there is none.
            MissingExtraError: if textworld-express is not installed.
            EnvironmentFailedError: if there is no Java runtime; says what to install.
        """
        game, known = member_of(name, PREFIX), self.names()
        if name not in known:
            raise unknown(name, known)
        return TextWorldEnvironment(game, self._games, self._solvers)


def textworld_express() -> TextWorldExpress:
    """Return the collection `textworld-express`."""
    return TextWorldExpress()


def chosen_action(reply: str, available: Sequence[str]) -> tuple[str | None, str]:
    """Return the available action that `reply` names, or None with what to tell the model.

    It stands after the one `Action:`; a reply that is nothing but an action will do. Case and markup do not matter.
    """
    named = list(named_actions(reply))
    if len(named) > 1:
        return None, "Only one action is allowed per reply; nothing was done.\n"
    wanted = " ".join((named[0] if named else reply)[:_ACTION_CHARS].lower().split()).strip(" .!`*'\"")
    for action in available:
        if action.lower() == wanted:
            return action, ""
    return None, f"That is not an action that you can take now: {wanted!r:.80}. Nothing was done.\n"


def _likeliest(available: Sequence[str], conversation: Sequence[Message]) -> str:
    """Return what a rule of thumb does: what the view names word for word, else read what is new, else something new.

    Of what was done least often, taking goes before opening and walking, then what shares words with task and view.
    """
    done = [message.content.rpartition("Action: ")[2] for message in conversation if message.role == "assistant"]
    view = conversation[-1].content.rpartition(_AVAILABLE)[0].rpartition("\nTask: ")[2]
    task = conversation[0].content.rpartition("\nTask: ")[2].partition("\n")[0]
    words = _words(f"{task} {view}")
    has_taken = bool(done) and done[-1].startswith("take")

    def order(action: str) -> tuple[bool, bool, int, int, int]:
        verb = action.partition(" ")[0]
        rank = _VERBS.index(verb) if verb in _VERBS else len(_VERBS)
        is_read = verb != "read" or (action in done and not has_taken)
        return action not in view, is_read, done.count(action), rank, -len(words & _words(action))

    return min(available, key=order)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower()))


def _view(answer: str) -> View:
    try:
        told = json.loads(answer)
    except ValueError:
        raise EnvironmentFailedError(f"TextWorldExpress answered {answer!r:.200}, which is no view of a game") from None
    return View(
        said=told["observation"].strip(),
        available=tuple(sorted(told["validActions"])),
        score=float(told["score"]),
        is_over=bool(told["tasksuccess"] or told["taskfailure"]),
    )
