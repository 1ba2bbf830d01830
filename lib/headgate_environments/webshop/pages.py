"""The pages of the shop: what each says, and which page every click on it leads to. Pages never change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from headgate_environments.webshop.catalogue import Product, search

PER_PAGE: Final = 10
BACK: Final = "Back to Search"
NEXT: Final = "Next >"
PREVIOUS: Final = "< Prev"
BUY: Final = "Buy Now"
SEARCHING: Final = "search[<keywords>]"
"""How the search bar stands among the available actions."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """The end of a visit: what was bought, with which values of its options."""

    product: Product
    chosen: tuple[str, ...]


class Page(Protocol):
    """One page: what it says, and where clicks lead."""

    @property
    def says(self) -> tuple[str, ...]:
        """Its texts from top to bottom, buttons included."""
        ...

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """Return what can be clicked, by its text in small letters, with what it leads to."""
        ...


@dataclass(frozen=True, slots=True)
class StartPage:
    """The search bar."""

    @property
    def says(self) -> tuple[str, ...]:
        """Nothing but the bar."""
        return ("Search",)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """Nothing can be clicked."""
        return {}


@dataclass(frozen=True, slots=True)
class ResultsPage:
    """Ten of the products that a search has found."""

    hits: tuple[Product, ...]
    number: int = 1

    @property
    def says(self) -> tuple[str, ...]:
        """Which page it is, and the products with their titles and prices."""
        listed = (text for product in self._shown for text in (product.item_id, product.title, _price(product)))
        turning = (text for text in (NEXT, PREVIOUS) if text.lower() in self.clicks())
        return (BACK, f"Page {self.number} (Total results: {len(self.hits)})", *turning, *listed)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The products, and the pages beside."""
        found: dict[str, Callable[[], Page | Purchase]] = {BACK.lower(): StartPage}
        if self.number * PER_PAGE < len(self.hits):
            found[NEXT.lower()] = lambda: ResultsPage(self.hits, self.number + 1)
        if self.number > 1:
            found[PREVIOUS.lower()] = lambda: ResultsPage(self.hits, self.number - 1)
        return found | {product.item_id.lower(): _leading_to(ItemPage(self, product)) for product in self._shown}

    @property
    def _shown(self) -> tuple[Product, ...]:
        return self.hits[(self.number - 1) * PER_PAGE : self.number * PER_PAGE]


@dataclass(frozen=True, slots=True)
class ItemPage:
    """One product. `chosen` are values of its options by the option's name, which last until the page is left."""

    results: ResultsPage
    product: Product
    chosen: tuple[tuple[str, str], ...] = ()

    @property
    def says(self) -> tuple[str, ...]:
        """Its options, title, price and rating, and the way to more about it."""
        return (BACK, PREVIOUS, *self._options(), self.product.title, f"Price: {_price(self.product)}", *SECTIONS, BUY)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The values of its options, the pages about it, and the purchase."""
        found: dict[str, Callable[[], Page | Purchase]] = {
            BACK.lower(): StartPage,
            PREVIOUS.lower(): _leading_to(self.results),
        }
        for name, values in self.product.options:
            found |= {value: _leading_to(self._with(name, value)) for value in values}
        found |= {section.lower(): _leading_to(SectionPage(self, section)) for section in SECTIONS}
        return found | {BUY.lower(): lambda: Purchase(self.product, tuple(value for _, value in self.chosen))}

    def _options(self) -> Iterator[str]:
        for name, values in self.product.options:
            chosen = dict(self.chosen).get(name)
            yield f"{name} (chosen: {chosen})" if chosen else name
            yield from values

    def _with(self, name: str, value: str) -> ItemPage:
        return ItemPage(self.results, self.product, tuple((dict(self.chosen) | {name: value}).items()))


@dataclass(frozen=True, slots=True)
class SectionPage:
    """More about a product."""

    item: ItemPage
    section: str

    @property
    def says(self) -> tuple[str, ...]:
        """The texts of the section."""
        return (BACK, PREVIOUS, *SECTIONS[self.section](self.item.product))

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The way back."""
        return {BACK.lower(): StartPage, PREVIOUS.lower(): _leading_to(self.item)}


SECTIONS: Final[dict[str, Callable[[Product], tuple[str, ...]]]] = {
    "Description": lambda product: (product.description,),
    "Features": lambda product: product.features,
    "Reviews": lambda product: product.reviews,
    "Attributes": lambda product: product.attributes,
}


def results_of(keywords: str) -> ResultsPage:
    """Return the first page of what a search for `keywords` finds."""
    return ResultsPage(search(keywords))


def can_search(page: Page) -> bool:
    """Return whether the page has the search bar."""
    return isinstance(page, StartPage)


def observation(instruction: str, page: Page) -> str:
    """Return a page as the shopper sees it: AgentGym's one line with `[SEP]`, and the available actions."""
    actions = [SEARCHING] if can_search(page) else []
    actions += [f"click[{text}]" for text in page.clicks()]
    seen = " [SEP] ".join(("Instruction:", instruction, *page.says))
    return f"{seen}\n\nAvailable actions: {json.dumps(actions)}"


def _leading_to(page: Page) -> Callable[[], Page | Purchase]:
    return lambda: page


def _price(product: Product) -> str:
    return f"${product.price:.2f}"
