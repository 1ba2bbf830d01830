"""`agentgym:textcraft`: craft a thing from raw materials, by recipes listed among irrelevant ones, in ten rounds."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, Score, failed, passed
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.text_game import GameEpisode, TextGame, next_action
from headgate_environments.textcraft.recipes import (
    LICENCE,
    SOURCE,
    Recipe,
    RecipeBook,
    Stack,
    recipe_book,
    require_textcraft,
)


@functools.cache
def planned_actions(goal: str) -> tuple[str, ...]:
    """Return the actions that craft `goal` from scratch: first all that has to be taken, then every crafting."""
    return tuple(_Planner(recipe_book()).plan(goal))


@dataclass(frozen=True, slots=True, order=True)
class _Way:
    """The cheapest way to get a thing: total `actions`, the concrete `thing`, and its `recipe`; None if it is taken."""

    actions: int
    thing: str
    recipe: Recipe | None = field(compare=False)


class _Planner:
    """Collects the actions for one goal. Used once."""

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self._taken: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()
        self._crafting: list[str] = []

    def plan(self, goal: str) -> list[str]:
        self._provide(Stack(1, goal))
        return [*(f"get {count} {name}" for name, count in self._taken.items()), *self._crafting]

    def _provide(self, wanted: Stack) -> Stack:
        """Add the actions that provide `wanted` and reserve it; return the concrete thing."""
        way = self._way(wanted)
        if way.recipe is None:
            self._taken[way.thing] += wanted.count
        else:
            while self._spare[way.thing] < wanted.count:
                self._craft(way.recipe)
            self._spare[way.thing] -= wanted.count
        return Stack(wanted.count, way.thing)

    def _craft(self, recipe: Recipe) -> None:
        inputs = tuple(self._provide(stack) for stack in recipe.inputs)
        self._crafting.append(str(Recipe(recipe.output, inputs)))
        self._spare[recipe.output.name] += recipe.output.count

    def _way(self, wanted: Stack) -> _Way:
        return min(way for thing in self._book.things(wanted.name) for way in self._ways(thing, wanted.count))

    def _ways(self, thing: str, count: int) -> list[_Way]:
        recipes = self._book.recipes.get(thing)
        if recipes is None:
            return [_Way(1, thing, None)]
        return [
            _Way(self._actions(recipe, math.ceil(count / recipe.output.count)), thing, recipe) for recipe in recipes
        ]

    def _actions(self, recipe: Recipe, times: int) -> int:
        """Return the number of actions to craft `recipe` this many times, sharing nothing with other recipes."""
        return times + sum(self._way(Stack(stack.count * times, stack.name)).actions for stack in recipe.inputs)


MAX_ROUNDS: Final = 10
"""Replies per episode (Affine's default); enough to reach every goal."""

GOALS: Final = 372
"""Number of things that need a chain of two or more recipes, and can be crafted within `MAX_ROUNDS` actions.

AgentGym also asks for things with a single recipe, which random play crafts more than half of the time; ADaPT does not.
"""

VARIANTS: Final = 10
"""Tasks per goal, each with its own distractors and order of recipes: the data length is `GOALS` times this."""

MAX_DISTRACTORS: Final = 10
"""Maximum number of irrelevant recipes shown (AgentGym's bound)."""

_INSTRUCTIONS: Final = """\
You are given a goal and a list of crafting commands. Each round you take one action and are told what came of it.

Actions:
- get <count> <thing>: take a thing that no command makes; such things lie about in any number
- craft <count> <thing> using <count> <thing>, <count> <thing>: one of the commands below, with things that you have
- inventory: look up what you have

Always give the counts, as the command does. Where a command asks for a kind of thing such as "planks", name one of \
that kind, such as "dark oak planks". You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

Crafting commands:
{commands}

Goal: craft {goal}."""

_GET: Final = re.compile(r"get (\d{1,6}) (.+)")
_CRAFT: Final = re.compile(r"craft (?:\d{1,6} )?(.+?) using (.+)")
_STACK: Final = re.compile(r"(\d{1,6}) (.+)")
_ACTION_CHARS: Final = 1_000
"""Far more than the longest command, which has 90 characters."""


@dataclass(frozen=True, slots=True)
class CraftingTask:
    """The thing to craft, and the commands shown."""

    goal: str
    commands: tuple[str, ...]


def crafting_task(index: int) -> CraftingTask:
    """Return task `index`: goal `index % GOALS`, with the distractors and the order of variant `index // GOALS`."""
    book = recipe_book()
    goals = reachable_goals()
    goal = goals[index % len(goals)]
    rng = random.Random(f"textcraft:{index // len(goals)}:{goal}")
    needed = book.below(goal)
    inputs = {stack.name for recipe in needed for stack in recipe.inputs}
    others = [recipe for recipe in book.users_of(inputs) if recipe not in needed]
    shown = [*needed, *rng.sample(others, min(len(others), MAX_DISTRACTORS))]
    rng.shuffle(shown)
    return CraftingTask(goal, tuple(map(str, shown)))


@functools.cache
def reachable_goals() -> tuple[str, ...]:
    """Return the goals, in an order that mixes easy and hard ones; see `GOALS`."""
    book = recipe_book()
    deep = [name for name in book.recipes if not any(book.takes_only_raw(recipe) for recipe in book.recipes[name])]
    found = [name for name in deep if len(planned_actions(name)) <= MAX_ROUNDS]
    return tuple(sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()))


class TextCraftEpisode(GameEpisode):
    """One task in progress."""

    def __init__(self, task: CraftingTask, book: RecipeBook) -> None:
        self._task = task
        self._book = book
        self._inventory: Counter[str] = Counter()
        super().__init__(_INSTRUCTIONS.format(rounds=MAX_ROUNDS, commands="\n".join(task.commands), goal=task.goal))

    async def _outcome(self, reply: str) -> str | Score:
        said = self._said(reply)
        if self._inventory[self._task.goal] > 0:
            return passed(f"crafted {self._task.goal}: rounds={self.rounds}")
        if self.rounds >= MAX_ROUNDS:
            return failed(f"{self._task.goal} not crafted: rounds={self.rounds}")
        return said

    def _said(self, reply: str) -> str:
        """Take the action in `reply` and return its outcome."""
        named = only_action(reply)
        if named is None:
            return ONE_ACTION
        action = _plain(named)
        if found := _GET.fullmatch(action):
            return self._get(Stack(int(found[1]), found[2]))
        if found := _CRAFT.fullmatch(action):
            return self._craft(found[1], found[2])
        if action == "inventory":
            return self._listed()
        return f"Could not execute {action!r:.80}. Actions are get, craft and inventory, with counts."

    def _get(self, wanted: Stack) -> str:
        if wanted.name not in self._book.raw or not wanted.count:
            return f"Could not find {wanted.name:.80}."
        self._inventory[wanted.name] += wanted.count
        return f"Got {wanted}."

    def _craft(self, name: str, inputs: str) -> str:
        given = _stacks(inputs)
        if given is None:
            return f"Could not read the ingredients {inputs!r:.80}: each needs a count, with commas between them."
        if any(self._inventory[stack.name] < stack.count for stack in given):
            return f"Could not find enough items to craft {name:.80}."
        recipe = self._book.recipe_for(name, given)
        if recipe is None:
            return f"Could not find a valid recipe for {name:.80}."
        self._inventory.subtract({stack.name: stack.count for stack in given})
        self._inventory[name] += recipe.output.count
        return f"Crafted {recipe.output}."

    def _listed(self) -> str:
        held = [f"[{name}] ({count})" for name, count in self._inventory.items() if count]
        return f"Inventory: {' '.join(held) or 'You are not carrying anything.'}"


class TextCraftEnvironment(TextGame):
    """AgentGym's textcraft. Stateless; tasks depend on the index alone."""

    spec = EnvironmentSpec(
        name="agentgym:textcraft",
        summary="Craft an item from recipes, among irrelevant ones, in up to 10 rounds",
        daily_rate=100.0,
        data_length=GOALS * VARIANTS,
        max_rounds=MAX_ROUNDS,
        licence=LICENCE,
        source=SOURCE,
        chance_score=0.002,
    )

    async def _begun(self, index: int) -> TextCraftEpisode:
        book = await asyncio.to_thread(recipe_book)
        return TextCraftEpisode(crafting_task(index), book)

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        del index
        text = conversation[0].content
        if kind == "random":
            return rng.choice(_parts(rng.choice(_commands_in(text))))
        goal = _goal_in(text)
        plan = planned_actions(goal) if kind == "solver" else _one_level(_commands_in(text), goal)
        return next_action(plan, conversation, "inventory")


def textcraft() -> TextCraftEnvironment:
    """Return `agentgym:textcraft`.

    Raises:
        MissingExtraError: if the package with the recipes is not installed.
    """
    require_textcraft()
    return TextCraftEnvironment()


def _plain(action: str) -> str:
    """Return an action in lower case and without punctuation, as AgentGym's client sends it."""
    return " ".join(re.sub(r"[^a-z0-9, ]+", " ", action[:_ACTION_CHARS].lower()).split())


def _stacks(text: str) -> list[Stack] | None:
    """Return the things and counts in `1 stick, 2 coal`, with equal things summed; None if one has no count."""
    counts: Counter[str] = Counter()
    for part in text.split(","):
        found = _STACK.fullmatch(part.strip())
        if found is None:
            return None
        counts[found[2]] += int(found[1])
    return [Stack(count, name) for name, count in counts.items()]


def _commands_in(text: str) -> list[str]:
    return text.partition("\nCrafting commands:\n")[2].partition("\n\n")[0].splitlines()


def _goal_in(text: str) -> str:
    return text.rpartition("\nGoal: craft ")[2].rstrip(".")


def _parts(command: str) -> list[str]:
    """Return the actions that a command names: taking each of its ingredients, and the command itself."""
    return [*(f"get {part}" for part in command.partition(" using ")[2].split(", ")), command]


def _one_level(commands: Sequence[str], goal: str) -> tuple[str, ...]:
    """Return the actions of the first command that makes `goal`; its ingredients are crafted if a command does so."""
    makers = {_made_by(command): command for command in reversed(commands)}
    actions: list[str] = []
    for taking in _parts(makers[goal])[:-1]:
        maker = makers.get(taking.split(" ", 2)[2])
        actions += _parts(maker) if maker else [taking]
    return (*actions, makers[goal])


def _made_by(command: str) -> str:
    return command.removeprefix("craft ").partition(" using ")[0].partition(" ")[2]
