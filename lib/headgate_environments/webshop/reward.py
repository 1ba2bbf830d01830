"""WebShop's reward: how well a purchase meets the requirements, in [0, 1].

The rule is the published one (princeton-nlp/WebShop, `engine/goal.py`), term by term:

    type factor * (attributes met + options met + price met) / (attributes + options + 1)

Two things differ, since no package provides the originals: the nouns of a title come from the grammar that made it,
where WebShop uses a language model, and the base colours are those of this shop.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headgate.core import errors

ALIKE: Final = 85
"""Two texts count as the same if their token set ratio, in whole percent, is above this."""

BASE_COLOURS: Final = (
    "black", "blue", "brown", "green", "grey", "orange", "pink", "purple", "red", "white", "yellow",
)  # fmt: skip
"""To the reward, all shades of one of these are the same colour."""


@dataclass(frozen=True, slots=True)
class Goods:
    """A product as the reward sees it.

    Attributes:
        query: search text that finds its kind.
        categories: its path through the shop.
        nouns: nouns of its title, in lower case.
        attributes: its attributes.
        texts: title, features and description, in lower case.
    """

    query: str
    categories: frozenset[str]
    nouns: frozenset[str]
    attributes: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What an instruction asks for: something like `goods`, with attributes, option values and a price limit."""

    goods: Goods
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a purchase: `value`, and its parts."""

    type_factor: float
    attributes: int
    options: int
    price: bool
    terms: int

    @property
    def value(self) -> float:
        """The reward in [0, 1]; 1 if everything is met."""
        return self.type_factor * (self.attributes + self.options + self.price) / self.terms


def reward_of(bought: Goods, price: float, chosen: Sequence[str], wish: Wish) -> Reward:
    """Return the reward for buying `bought` at `price` with the option values `chosen`."""
    return Reward(
        type_factor=type_factor(bought, wish.goods),
        attributes=sum(_has(bought, attribute) for attribute in wish.attributes),
        options=sum(_is_chosen(wanted, chosen) for wanted in wish.options),
        price=price <= wish.price_upper,
        terms=len(wish.attributes) + len(wish.options) + 1,
    )


def type_factor(bought: Goods, wanted: Goods) -> float:
    """Return 1 for the wanted kind, else 0.5, 0.1 or 0: the less the two have in common, the lower."""
    overlap = len(bought.nouns & wanted.nouns) / len(wanted.nouns) if wanted.nouns else 0.2
    if overlap == 0.0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    same_shelf = len(bought.categories & wanted.categories) >= 2
    return 1.0 if bought.query == wanted.query or same_shelf or overlap > 0.2 else 0.5


def base_colour(value: str) -> str:
    """Return the first base colour in `value`, or `value` itself."""
    return next((colour for colour in BASE_COLOURS if colour in value), value)


def are_alike(one: str, other: str) -> bool:
    """Return whether two texts count as the same: `thefuzz.fuzz.token_set_ratio` is above `ALIKE`."""
    fuzz, utils = _rapidfuzz()
    one, other = (utils.default_process(text.encode("ascii", "ignore").decode()) for text in (one, other))
    return bool(round(fuzz.token_set_ratio(one, other)) > ALIKE)


def require_rapidfuzz() -> None:
    """Raise unless rapidfuzz is installed.

    Raises:
        MissingExtraError: if it is not.
    """
    try:
        _rapidfuzz()
    except ModuleNotFoundError:
        raise errors.MissingExtraError("environment 'agentgym:webshop'", "environments") from None


@cache
def _rapidfuzz() -> tuple[Any, Any]:
    """Return the modules `fuzz` and `utils` of an optional package."""
    return importlib.import_module("rapidfuzz.fuzz"), importlib.import_module("rapidfuzz.utils")


def _has(bought: Goods, attribute: str) -> bool:
    known = any(are_alike(attribute, text) for text in bought.attributes)
    return known or any(attribute in text for text in bought.texts)


def _is_chosen(option: str, chosen: Sequence[str]) -> bool:
    return any(are_alike(base_colour(option), base_colour(value)) for value in chosen)
