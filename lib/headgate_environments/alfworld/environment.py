"""`agentgym:alfworld`: do a task in a house described in text, in up to twenty rounds."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import Final

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, Score, failed, passed
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.alfworld.kinds import OPENABLE, kind_of
from headgate_environments.alfworld.plan import Search, planned_actions
from headgate_environments.alfworld.tasks import HouseholdTask, household_task
from headgate_environments.alfworld.world import Action, World
from headgate_environments.text_game import GameEpisode, TextGame, actions_in, next_action

NOTHING_HAPPENS: Final = "Nothing happens."

_HELP: Final = """\
You can say, if it is possible where you are:
go to <place>, open <place>, close <place>, examine <place or thing in hand>, take <thing> from <place>, \
move <thing> to <place>, clean <thing> with <sinkbasin>, heat <thing> with <microwave>, cool <thing> with <fridge>, \
slice <thing> with <knife>, use <lamp>, look, inventory, help."""

_DEEDS: Final = {
    "go": "You arrive at {where}.",
    "open": "You open the {where}.",
    "close": "You close the {where}.",
    "take": "You pick up the {what} from the {where}.",
    "move": "You move the {what} to the {where}.",
    "use": "You turn on the {what}.",
    "clean": "You clean the {what} using the {where}.",
    "heat": "You heat the {what} using the {where}.",
    "cool": "You cool the {what} using the {where}.",
    "slice": "You sliced the {what} with the {where}.",
    "help": _HELP,
}


def told(world: World, action: Action) -> str:
    """Return the message to the player after `action` has been taken in `world`."""
    match action.verb:
        case "examine" if action.what in world.house.places:
            return _place_told(world, action.what)
        case "examine":
            return _thing_told(world, action.what)
        case "look":
            return f"You are facing the {world.at}. Next to it, you see nothing." if world.at else room_told(world)
        case "inventory":
            return f"You are carrying: a {world.held}." if world.held else "You are not carrying anything."
        case "go" | "open":
            return f"{_deed_told(action)} {_place_told(world, action.where)}"
        case _:
            return _deed_told(action)


def room_told(world: World) -> str:
    """Return the description of the room, seen from its middle."""
    return f"You are in the middle of a room. Looking quickly around you, you see {_enumerated(world.house.places)}."


def _place_told(world: World, place: str) -> str:
    if kind_of(place) not in OPENABLE:
        return f"On the {place}, you see {_enumerated(world.things_at(place))}."
    if place in world.opened:
        return f"The {place} is open. In it, you see {_enumerated(world.things_at(place))}."
    return f"The {place} is closed."


def _thing_told(world: World, thing: str) -> str:
    states = [state for state in ("hot", "cool", "clean") if (thing, state) in world.states]
    words = " and ".join(states)
    if (thing, "sliced") in world.states:
        words = f"{words} sliced".strip()
    return f"This is a {words} {thing}." if words else f"There's nothing special about {thing}."


def _deed_told(action: Action) -> str:
    return _DEEDS[action.verb].format(what=action.what, where=action.where)


def _enumerated(names: Iterable[str]) -> str:
    """Return `a mug 1, and a plate 2`: every name with the article `a`, the last one with `and`, as in ALFWorld."""
    told = [f"a {name}" for name in names]
    if len(told) > 1:
        told[-1] = f"and {told[-1]}"
    return ", ".join(told) or "nothing"


MAX_ROUNDS: Final = 20
"""Replies per episode: about twice as many as the longest task takes a player who knows where everything is.

10 rounds, AgentGym's number, leave no time to search. In 50, ALFWorld's number, visiting all places one by one solves
nearly every task, which does not tell good players from bad ones.
"""

DATA_LENGTH: Final = 1_000_000
"""Every index draws its own house and task."""

_INSTRUCTIONS: Final = """\
You are in a house and have a task to do. Each round you take one action and are told what came of it.

Actions, where places and things have numbers, such as "cabinet 2" and "mug 1":
- go to <place>: what is there can only be seen and reached from there
- open <place>, close <place>
- take <thing> from <place>: you can hold one thing
- move <thing> to <place>: put down what you hold, where such things belong
- clean <thing> with <sinkbasin>, heat <thing> with <microwave>, cool <thing> with <fridge>: what you hold
- use <lamp>: to look at a thing by the light of a lamp, hold it where the lamp is and use the lamp
- slice <thing> with <knife>: with a knife that you hold
- examine <place, or thing that you hold>, look, inventory, help

Only the actions that are listed as available do something. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

{room}
Your task is to: {task}.
{available}"""

_AVAILABLE: Final = "AVAILABLE ACTIONS: "
_TASK: Final = "\nYour task is to: "
_PUT: Final = re.compile(r"put (\w+ \d+) (?:in on|into|onto|in|on|to) (\w+ \d+)")
_ACTION_CHARS: Final = 200
"""Far more than the longest action, which has about 50 characters."""


class AlfworldEpisode(GameEpisode):
    """One task in progress."""

    def __init__(self, task: HouseholdTask) -> None:
        self._goal = task.goal
        self._world = World(task.house)
        self._possible = self._world.possible()
        super().__init__(
            _INSTRUCTIONS.format(
                rounds=MAX_ROUNDS, room=room_told(self._world), task=task.goal, available=_listed(self._possible)
            )
        )

    async def _outcome(self, reply: str) -> str | Score:
        said = self._said(reply)
        if self._goal.is_met(self._world):
            return passed(f"done: {self._goal}: rounds={self.rounds}")
        if self.rounds >= MAX_ROUNDS:
            return failed(f"not done: {self._goal}: rounds={self.rounds}")
        return f"{said}\n{_listed(self._possible)}"

    def _said(self, reply: str) -> str:
        """Take the action in `reply` and return its outcome."""
        named = only_action(reply)
        if named is None:
            return ONE_ACTION
        action = self._possible.get(plain_action(named))
        if action is None:
            return NOTHING_HAPPENS
        self._world.take(action)
        self._possible = self._world.possible()
        return told(self._world, action)


class AlfworldEnvironment(TextGame):
    """AgentGym's alfworld, in houses of our own. Stateless; tasks depend on the index alone."""

    spec = EnvironmentSpec(
        name="agentgym:alfworld",
        summary="Do a household task in a text world, in up to 20 rounds",
        daily_rate=80.0,
        data_length=DATA_LENGTH,
        max_rounds=MAX_ROUNDS,
        licence="Apache-2.0",
        source="houses of our own; rules published by alfworld/alfworld, task rule by WooooDyy/AgentGym",
        chance_score=0.0016,
        tasks_are_drawn=True,
    )

    async def _begun(self, index: int) -> AlfworldEpisode:
        return AlfworldEpisode(household_task(index))

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        available = conversation[-1].content.rpartition(_AVAILABLE)[2].split(", ")
        if kind == "random":
            return rng.choice(available)
        if kind == "greedy":
            task = conversation[0].content.rpartition(_TASK)[2].partition("\n")[0]
            return Search(task, available, actions_in(conversation)).next_action()
        return next_action(planned_actions(index), conversation, "look")


def alfworld() -> AlfworldEnvironment:
    """Return `agentgym:alfworld`; it needs no extra."""
    return AlfworldEnvironment()


def plain_action(action: str) -> str:
    """Return an action in the listed form: lower case, no punctuation or articles, `move` for `put`."""
    words = re.sub(r"[^a-z0-9]+", " ", action[:_ACTION_CHARS].lower()).split()
    text = " ".join(word for word in words if word not in ("the", "a", "an"))
    found = _PUT.fullmatch(text)
    return f"move {found[1]} to {found[2]}" if found else text


def _listed(actions: Iterable[str]) -> str:
    return _AVAILABLE + ", ".join(actions)
