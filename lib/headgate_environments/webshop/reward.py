"""WebShop's reward: how much of what was wanted a purchase gives, in [0, 1].

The rule is the published one (princeton-nlp/WebShop, `engine/goal.py`), term for term:

    type factor * (attributes met + options met + price met) / (attributes + options + 1)

Two things are ours, since the originals cannot be had from a package: the nouns of a title are known from the grammar
that made it, where WebShop asks a language model for them, and the base colours are those of this shop.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headgate.core import errors

ALIKE: Final = 85
"""Two texts count as the same when their token set ratio, in whole percent, is above this."""

BASE_COLOURS: Final = (
    "black", "blue", "brown", "green", "grey", "orange", "pink", "purple", "red", "white", "yellow",
)  # fmt: skip
"""Shades of one of these are the same colour to the reward."""


@dataclass(frozen=True, slots=True)
class Goods:
    """A product as the reward sees it.

    Attributes:
        query: what people search to find its kind.
        categories: its path through the shop.
        nouns: of its title, in small letters.
        attributes: what is known of it.
        texts: title, features and description, in small letters.
    """

    query: str
    categories: frozenset[str]
    nouns: frozenset[str]
    attributes: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What an instruction asks for: something like `goods`, with attributes, option values and a highest price."""

    goods: Goods
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float


@dataclass(frozen=True, slots=True)
class Reward:
    """What a purchase earns: `value`, and the parts that it is made of."""

    type_factor: float
    attributes: int
    options: int
    price: bool
    terms: int

    @property
    def value(self) -> float:
        """In [0, 1]; 1 when everything is met."""
        return self.type_factor * (self.attributes + self.options + self.price) / self.terms


def reward_of(bought: Goods, price: float, chosen: Sequence[str], wish: Wish) -> Reward:
    """Return what buying `bought` at `price` with the option values `chosen` earns."""
    return Reward(
        type_factor=type_factor(bought, wish.goods),
        attributes=sum(_has(bought, attribute) for attribute in wish.attributes),
        options=sum(_is_chosen(wanted, chosen) for wanted in wish.options),
        price=price <= wish.price_upper,
        terms=len(wish.attributes) + len(wish.options) + 1,
    )


def type_factor(bought: Goods, wanted: Goods) -> float:
    """Return 1 for the kind that is wanted, 0.5, 0.1 or 0 the less the two have in common."""
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
    """Return whether two texts count as the same, as `thefuzz.fuzz.token_set_ratio` above `ALIKE` says."""
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
