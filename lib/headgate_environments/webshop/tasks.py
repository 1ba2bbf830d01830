"""What is asked for: one instruction per index, drawn from the catalogue."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from headgate_environments.webshop.catalogue import Product, catalogue
from headgate_environments.webshop.pages import PER_PAGE
from headgate_environments.webshop.reward import Wish
from headgate_environments.webshop.search import search

MAX_ROUNDS: Final = 10
"""Replies per episode (Affine's default)."""

INSTRUCTIONS: Final = 12_000
"""About as many as WebShop has."""

_PRICE_STEP: Final = 10
_PRICE_STEPS: Final = 4
"""The highest price is one of the next four tens above the product's (WebShop's rule)."""

_WORDINGS: Final = (
    "I need {kind} described as {attributes}, with {options}, and price lower than {price} dollars",
    "Find me {kind} whose features are {attributes}; I want {options} and will pay less than {price} dollars",
    "Looking for {kind} ({attributes}). Please take {options}, price below {price} dollars",
    "Buy {kind} for me. Its attributes are {attributes}, my choice is {options}, and it costs under {price} dollars",
)


@dataclass(frozen=True, slots=True)
class ShoppingTask:
    """One instruction.

    Attributes:
        instruction: what the shopper is told.
        wish: what the purchase is held against.
        product: one that fulfils it; others may.
        options: the values of its options that are asked for.
    """

    instruction: str
    wish: Wish
    product: Product
    options: tuple[str, ...]

    def actions(self) -> tuple[str, ...]:
        """Return a way to buy the product: its title searched, the page it stands on, the options, the purchase."""
        place = search(self.product.title).index(self.product)
        turning = ["click[next >]"] * (place // PER_PAGE)
        choosing = [f"click[{value}]" for value in self.options]
        item = f"click[{self.product.item_id.lower()}]"
        return (f"search[{self.product.title}]", *turning, item, *choosing, "click[buy now]")


def shopping_task(index: int) -> ShoppingTask:
    """Return task `index`."""
    rng = random.Random(f"webshop:task:{index}")
    product = rng.choice(catalogue())
    attributes = tuple(rng.sample(product.attributes, rng.choice((1, 2, 2))))
    chosen = [(name, rng.choice(values)) for name, values in product.options]
    limit = _PRICE_STEP * (int(product.price // _PRICE_STEP) + rng.randint(1, _PRICE_STEPS))
    told = rng.choice(_WORDINGS).format(
        kind=product.kind.name,
        attributes=" and ".join(attributes),
        options=" and ".join(f"{name} {value}" for name, value in chosen),
        price=f"{limit}.00",
    )
    options = tuple(value for _, value in chosen)
    return ShoppingTask(told, Wish(product.goods, attributes, options, float(limit)), product, options)
