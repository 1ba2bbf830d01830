"""The solver of TextCraft: which things to take and what to craft from them, in order."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, field

from headgate_environments.textcraft.recipes import Recipe, RecipeBook, Stack, recipe_book


@functools.cache
def planned_actions(goal: str) -> tuple[str, ...]:
    """Return the actions that craft `goal` out of nothing: what is to be taken first, then every crafting."""
    return tuple(_Planner(recipe_book()).plan(goal))


@dataclass(frozen=True, slots=True, order=True)
class _Way:
    """How a thing is best come by: `actions` in all; `thing` is what serves, `recipe` makes it, None takes it."""

    actions: int
    thing: str
    recipe: Recipe | None = field(compare=False)


class _Planner:
    """Collects what one goal needs. Used once."""

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self._taken: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()
        self._crafting: list[str] = []

    def plan(self, goal: str) -> list[str]:
        self._provide(Stack(1, goal))
        return [*(f"get {count} {name}" for name, count in self._taken.items()), *self._crafting]

    def _provide(self, wanted: Stack) -> Stack:
        """Add what brings `wanted` about and sets it aside; return the thing that serves."""
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
        """Return how many actions it takes to craft `recipe` so often, nothing being shared with others."""
        return times + sum(self._way(Stack(stack.count * times, stack.name)).actions for stack in recipe.inputs)
