"""`agentgym:sciworld`: do an elementary science experiment in a text world, in up to forty rounds."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.core import Message, errors
from headgate.environments import BaselineKind, EnvironmentSpec, Score, TaskCache, java_runtime
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.java import Loan, Pool
from headgate_environments.sciworld.game import DATA_LENGTH, MAX_ROUNDS, Experiment, experiment_at
from headgate_environments.text_game import GameEpisode, TextGame, actions_in, next_action

if TYPE_CHECKING:
    from headgate_environments.sciworld.game import ScienceWorld

_PLACE: Final = re.compile(r"(?:room|location) is called the ([a-z ]+)\.")
_DOOR: Final = re.compile(r"A door to the ([a-z ]+) \(that is (open|closed)\)")
_THING: Final = re.compile(
    r"(?:\t|: |, |containing )(?:[Aa]n? |[Tt]he )?(?:substance called )?([A-Za-z][A-Za-z0-9 '-]*?)(?= ?[.,()\n]|$)"
)
_NO_THINGS: Final = ("agent", "air", "nothing", "which is ", "currently ")

_ON_ONE_THING: Final = ("look at", "pick up", "open", "focus on", "activate", "use", "look in", "eat", "read", "mix")

GAMES: Final = 4
"""Maximum number of virtual machines for episodes, shared by the models: each takes up to 360 MB."""

SOLVERS: Final = 1
"""Virtual machines that only look up solutions, kept apart: an episode that holds a game may wait for one of them."""

EPISODE_TIMEOUT_S: Final = 1_800.0
"""Enough for forty replies of a slow model, and a wait for a game."""

_ACTION_CHARS: Final = 200
"""The game's longest actions have about 80 characters."""

_INSTRUCTIONS: Final = """\
You are in a house with a laboratory, and have a task of elementary science to do. Each round you take one action and \
are told what came of it.

Actions, where <thing> is something that you see or carry, such as "metal pot", or "thermometer in inventory":
- look around, look at <thing>, look in <container>, read <thing>
- inventory: what you carry; task: the task again
- go to <place>: a neighbouring one, through an open door
- open <door or container>, close <door or container>; a door is called "door to <place>"
- pick up <thing>, put down <thing>, move <thing> to <place or container>
- activate <device>, deactivate <device>, use <thing>, use <thing> on <thing>
- pour <liquid> in <container>, dunk <container> in <liquid>, mix <container>
- connect <thing> to <thing>, disconnect <thing>: electrical parts have terminals, such as "battery anode"
- eat <food>, flush <thing>
- focus on <thing>: say that this is the thing the task asks for; a wrong one fails the task for good
- wait, wait1: let ten rounds pass, or one
- a number: choose among the readings that you are asked about

Parts of the task earn parts of the score. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

{task}"""


class SciWorldEpisode(GameEpisode):
    """One experiment in progress; holds a virtual machine until it is closed."""

    def __init__(self, experiment: Experiment, game: Loan[ScienceWorld], task: str) -> None:
        super().__init__(_INSTRUCTIONS.format(rounds=MAX_ROUNDS, task=task))
        self._experiment = experiment
        self._game = game
        self._score = 0.0

    async def close(self) -> None:
        """Give the virtual machine back."""
        self._game.close()

    async def _outcome(self, reply: str) -> str | Score:
        """Take the action in `reply`, in a thread; takes about ten milliseconds."""
        said, is_over = await self._said(reply)
        return self._scored() if is_over or self.rounds >= MAX_ROUNDS else said

    async def _said(self, reply: str) -> tuple[str, bool]:
        """Take the action in `reply`; return its outcome, and whether it ends the episode."""
        named = only_action(reply)
        if named is None:
            return ONE_ACTION, False
        action = plain_action(named)
        if not action:
            return "No action was found in the reply; nothing was done.", False
        outcome = await self._game.call(lambda game: game.step(action))
        self._score = outcome.score
        return outcome.said, outcome.is_over

    def _scored(self) -> Score:
        value = min(1.0, max(0.0, self._score))
        how = "failed for good" if self._score < 0 else f"{value:.0%} done"
        return Score(value, success=value >= 1.0, why=f"{self._experiment}: {how}, rounds={self.rounds}")


class SciWorldEnvironment(TextGame):
    """AgentGym's sciworld, played in this process. Tasks depend on the index alone."""

    spec = EnvironmentSpec(
        name="agentgym:sciworld",
        summary="Do an elementary science experiment in a text world, in up to 40 rounds",
        daily_rate=80.0,
        data_length=DATA_LENGTH,
        max_rounds=MAX_ROUNDS,
        timeout_s=EPISODE_TIMEOUT_S,
        licence="Apache-2.0",
        source="game of the package scienceworld (Apache-2.0); choice of tasks published by WooooDyy/AgentGym",
        # Over tasks 0 to 68, three per experiment: random scores 0.073, greedy 0.310 and the solution 0.985. The latter
        # solves 65; the others need more rounds than there are.
        chance_score=0.073,
        solver_rate=0.9,
    )

    def __init__(self) -> None:
        self._games: Pool[ScienceWorld] = Pool(_started, GAMES)
        self._solvers: Pool[ScienceWorld] = Pool(_started, SOLVERS)
        self._solutions = TaskCache(self._solution)

    async def _begun(self, index: int) -> SciWorldEpisode:
        """Begin task `index` once one of the virtual machines is free."""
        experiment = experiment_at(index)
        game, task = await self._games.begun(lambda game: game.begin(experiment))
        return SciWorldEpisode(experiment, game, task)

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        if kind == "solver":
            return next_action(await self._solutions.get(index, 0), conversation, "wait1")
        return (greedy_action if kind == "greedy" else random_action)(conversation, rng)

    async def _solution(self, index: int, seed: int) -> tuple[str, ...]:
        del seed
        experiment = experiment_at(index)
        return await self._solvers.asked(lambda game: game.solution(experiment))


@functools.cache
def _environment() -> SciWorldEnvironment:
    return SciWorldEnvironment()


def sciworld() -> SciWorldEnvironment:
    """Return `agentgym:sciworld`, the same object for every caller, since it bounds the process's virtual machines.

    Raises:
        MissingExtraError: if the package with the game is not installed.
        EnvironmentFailedError: if there is no Java runtime; the message says what to install.
    """
    if importlib.util.find_spec("scienceworld") is None or importlib.util.find_spec("py4j") is None:
        raise errors.MissingExtraError("environment 'agentgym:sciworld'", "sciworld")
    java_runtime()
    return _environment()


def plain_action(action: str) -> str:
    """Return an action in the form that the game reads: one line in lower case, without markup."""
    return " ".join(re.sub(r"[^a-z0-9(),.'-]+", " ", action[:_ACTION_CHARS].lower()).split()).strip(" .,'-()")


def _started() -> ScienceWorld:
    """Start a game; its module is imported here since it needs optional packages."""
    game: ScienceWorld = importlib.import_module("headgate_environments.sciworld.game").ScienceWorld()
    return game


@dataclass(frozen=True, slots=True)
class Sight:
    """A place as the game last described it.

    Attributes:
        things: names of the things there, including contents of open containers.
        doors: neighbouring place -> whether the door to it is open.
    """

    things: tuple[str, ...]
    doors: Mapping[str, bool]


def random_action(conversation: Sequence[Message], rng: random.Random) -> str:
    """Return, with equal chance, a random action on a thing in view or a random way out; after a move, look around."""
    done = actions_in(conversation)
    if _has_moved(done):
        return "look around"
    sight = last_sight(conversation)
    if not sight.things or rng.random() < 0.5:
        return rng.choice(["look around", *(_way_to(place, sight, done) for place in sight.doors)])
    first, second = (rng.choice(sight.things) for _ in range(2))
    return rng.choice([*(f"{act} {first}" for act in _ON_ONE_THING), f"move {first} to {second}"])


def greedy_action(conversation: Sequence[Message], rng: random.Random) -> str:
    """Return the action of a rule of thumb: take what the task names, put it in the box, or go where it went least."""
    done = actions_in(conversation)
    if _has_moved(done):
        return "look around"
    sight = last_sight(conversation)
    task = _task_in(conversation)
    for action in _on_named_things(sight, task, done):
        if action not in done:
            return action
    if not sight.doors:
        return random_action(conversation, rng)
    return _way_to(min(sight.doors, key=lambda place: _reluctance(place, task, done)), sight, done)


def last_sight(conversation: Sequence[Message]) -> Sight:
    """Return the place that was described last; an empty one if there was none."""
    for message in reversed(conversation):
        found = _PLACE.search(message.content)
        if message.role == "user" and found is not None:
            return _sight_of(message.content[found.end() :])
    return Sight((), {})


def _sight_of(text: str) -> Sight:
    names = dict.fromkeys(_THING.findall(text.partition("You also see:")[0]))
    things = tuple(name for name in names if not name.startswith(_NO_THINGS))
    return Sight(things, {found[1]: found[2] == "open" for found in _DOOR.finditer(text)})


def _on_named_things(sight: Sight, task: str, done: Sequence[str]) -> Iterator[str]:
    """Yield actions on the things in view whose words all occur in the task, boxes last."""
    words = frozenset(re.findall(r"[a-z]+", task.lower()))
    named = [thing for thing in sight.things if words.issuperset(thing.lower().split())]
    for thing in named:
        if not thing.endswith("box"):
            yield f"focus on {thing}"
            yield f"pick up {thing}"
    carried = [action.removeprefix("pick up ") for action in done if action.startswith("pick up ")]
    for box in named:
        if carried and box.endswith("box"):
            yield f"move {carried[-1]} to {box}"


def _reluctance(place: str, task: str, done: Sequence[str]) -> tuple[int, bool]:
    """Return a sort key of `place`: number of visits, then whether the task does not name it."""
    return done.count(f"go to {place}"), place not in task


def _way_to(place: str, sight: Sight, done: Sequence[str]) -> str:
    opening = f"open door to {place}"
    return f"go to {place}" if sight.doors[place] or opening in done else opening


def _has_moved(done: Sequence[str]) -> bool:
    return bool(done) and done[-1].startswith("go to ")


def _task_in(conversation: Sequence[Message]) -> str:
    return conversation[0].content.rpartition("Your task is to ")[2].partition("\n")[0]
