"""The tasks of TextCraft: which goals there are, and which commands are shown for each."""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass
from typing import Final

from headgate.environments.textcraft_plan import planned_actions
from headgate.environments.textcraft_recipes import recipe_book

MAX_ROUNDS: Final = 10
"""Replies per episode (the seed's default); every goal can be reached in them."""

GOALS: Final = 372
"""Things that take two recipes or more, one above the other, and can be crafted within `MAX_ROUNDS` actions.

AgentGym also asks for things of one recipe, which more than half of all random play crafts; ADaPT does not.
"""

VARIANTS: Final = 10
"""Tasks per goal, each with further recipes and an order of its own: the data length is `GOALS` times this."""

MAX_DISTRACTORS: Final = 10
"""Recipes shown that have no part in the goal (AgentGym's bound)."""


@dataclass(frozen=True, slots=True)
class CraftingTask:
    """What is to be crafted, and the commands that are shown."""

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
    """Return what is asked for, in an order in which easy and hard ones mix; see `GOALS`."""
    book = recipe_book()
    deep = [name for name in book.recipes if not any(book.takes_only_raw(recipe) for recipe in book.recipes[name])]
    found = [name for name in deep if len(planned_actions(name)) <= MAX_ROUNDS]
    return tuple(sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()))
