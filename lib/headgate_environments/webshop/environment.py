"""The environment `agentgym:webshop`: visits to the shop, and the baseline shoppers."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, Score, failed
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.text_game import GameEpisode, TextGame, next_action
from headgate_environments.webshop.catalogue import Product, catalogue, kinds, load_shop, search
from headgate_environments.webshop.reward import Wish, require_rapidfuzz, reward_of

PER_PAGE: Final = 10
BACK: Final = "Back to Search"
NEXT: Final = "Next >"
PREVIOUS: Final = "< Prev"
BUY: Final = "Buy Now"
SEARCHING: Final = "search[<keywords>]"
"""The search bar's entry among the available actions."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """The end of a visit: the product bought, and the chosen values of its options."""

    product: Product
    chosen: tuple[str, ...]


class Page(Protocol):
    """One page: its texts, and where clicks lead."""

    @property
    def says(self) -> tuple[str, ...]:
        """Its texts from top to bottom, buttons included."""
        ...

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """Return what can be clicked: text in lower case -> function that returns where the click leads."""
        ...


@dataclass(frozen=True, slots=True)
class StartPage:
    """The search bar."""

    @property
    def says(self) -> tuple[str, ...]:
        """The search bar only."""
        return ("Search",)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """Nothing can be clicked."""
        return {}


@dataclass(frozen=True, slots=True)
class ResultsPage:
    """Ten of the products that a search found."""

    hits: tuple[Product, ...]
    number: int = 1

    @property
    def says(self) -> tuple[str, ...]:
        """The page number, and the products with their titles and prices."""
        listed = (text for product in self._shown for text in (product.item_id, product.title, _price(product)))
        turning = (text for text in (NEXT, PREVIOUS) if text.lower() in self.clicks())
        return (BACK, f"Page {self.number} (Total results: {len(self.hits)})", *turning, *listed)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The products, and the previous and next page."""
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
    """One product. `chosen` has the chosen values by the option's name; they are lost when the page is left."""

    results: ResultsPage
    product: Product
    chosen: tuple[tuple[str, str], ...] = ()

    @property
    def says(self) -> tuple[str, ...]:
        """Its options, title and price, and buttons to its sections and the purchase."""
        return (BACK, PREVIOUS, *self._options(), self.product.title, f"Price: {_price(self.product)}", *SECTIONS, BUY)

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The values of its options, its sections, and the purchase."""
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
    """A page with details of a product."""

    item: ItemPage
    section: str

    @property
    def says(self) -> tuple[str, ...]:
        """The texts of the section."""
        return (BACK, PREVIOUS, *SECTIONS[self.section](self.item.product))

    def clicks(self) -> dict[str, Callable[[], Page | Purchase]]:
        """The buttons that lead back."""
        return {BACK.lower(): StartPage, PREVIOUS.lower(): _leading_to(self.item)}


SECTIONS: Final[dict[str, Callable[[Product], tuple[str, ...]]]] = {
    "Description": lambda product: (product.description,),
    "Features": lambda product: product.features,
    "Reviews": lambda product: product.reviews,
    "Attributes": lambda product: product.attributes,
}


def results_of(keywords: str) -> ResultsPage:
    """Return the first page of results for `keywords`."""
    return ResultsPage(search(keywords))


def can_search(page: Page) -> bool:
    """Return whether the page has the search bar."""
    return isinstance(page, StartPage)


def observation(instruction: str, page: Page) -> str:
    """Return the text that the shopper sees: AgentGym's single line with `[SEP]`, and the available actions."""
    actions = [SEARCHING] if can_search(page) else []
    actions += [f"click[{text}]" for text in page.clicks()]
    seen = " [SEP] ".join(("Instruction:", instruction, *page.says))
    return f"{seen}\n\nAvailable actions: {json.dumps(actions)}"


def _leading_to(page: Page) -> Callable[[], Page | Purchase]:
    return lambda: page


def _price(product: Product) -> str:
    return f"${product.price:.2f}"


MAX_ROUNDS: Final = 10
"""Replies per episode (Affine's default)."""

INSTRUCTIONS: Final = 12_000
"""About the number that WebShop has."""

_PRICE_STEP: Final = 10
_PRICE_STEPS: Final = 4
"""The price limit is one of the next four multiples of ten above the product's price (WebShop's rule)."""

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
        instruction: the text for the shopper.
        wish: the requirements that the purchase is scored against.
        product: a product that meets them; others may, too.
        options: the required values of its options.
    """

    instruction: str
    wish: Wish
    product: Product
    options: tuple[str, ...]

    def actions(self) -> tuple[str, ...]:
        """Return actions that buy the product: search its title, go to its page, choose the options, buy."""
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


_RULES: Final = """\
You are shopping in a web shop. The instruction says what to buy. Each round you see a page and take one action.

Actions:
- search[<keywords>]: search the shop, on a page with the search bar
- click[<text>]: click one of the buttons, products or options that the page lists as available

Choose the options that the instruction asks for on the product's page, then click Buy Now, which ends the visit. What \
you buy is judged by its kind, attributes, options and price. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

{observation}"""

_ACTION: Final = re.compile(r"(search|click)\s*\[(.+)\]", re.IGNORECASE | re.DOTALL)
_ACTION_CHARS: Final = 1_000
"""Far more than the longest title, and so than any useful search."""

_BUYING: Final = "click[buy now]"


class WebShopEpisode(GameEpisode):
    """One visit in progress."""

    def __init__(self, task: ShoppingTask) -> None:
        self._task = task
        self._page: Page = StartPage()
        super().__init__(_RULES.format(rounds=MAX_ROUNDS, observation=observation(task.instruction, self._page)))

    async def _outcome(self, reply: str) -> str | Score:
        reached = self._reached(reply)
        if isinstance(reached, Purchase):
            return self._judged(reached)
        if self.rounds >= MAX_ROUNDS:
            return failed(f"nothing was bought: rounds={self.rounds}")
        if isinstance(reached, str):
            return f"{reached}\n\n{observation(self._task.instruction, self._page)}"
        self._page = reached
        return observation(self._task.instruction, reached)

    def _reached(self, reply: str) -> Page | Purchase | str:
        """Return where `reply` leads, or a message why it leads nowhere."""
        named = only_action(reply)
        if named is None:
            return ONE_ACTION
        action = named[:_ACTION_CHARS].strip(" \t\r\n*`'\".")
        found = _ACTION.fullmatch(action)
        if found is None:
            return f"Could not read {action!r:.80}. Actions are search[<keywords>] and click[<text>]."
        return self._searched(found[2]) if found[1].lower() == "search" else self._clicked(found[2])

    def _searched(self, keywords: str) -> Page | str:
        if not can_search(self._page):
            return "There is no search bar on this page; click[back to search] leads to it."
        return results_of(keywords)

    def _clicked(self, text: str) -> Page | Purchase | str:
        leads_to = self._page.clicks().get(" ".join(text.lower().split()))
        return leads_to() if leads_to else f"There is no {text!r:.80} to click on this page."

    def _judged(self, purchase: Purchase) -> Score:
        product = purchase.product
        reward = reward_of(product.goods, product.price, purchase.chosen, self._task.wish)
        parts = f"type={reward.type_factor} attributes={reward.attributes} options={reward.options}"
        why = f"bought {product.item_id}: {parts} price={int(reward.price)} of {reward.terms}, rounds={self.rounds}"
        return Score(reward.value, success=reward.value == 1.0, why=why)


class WebShopEnvironment(TextGame):
    """WebShop in a shop of our own. Stateless; tasks depend on the index alone."""

    spec = EnvironmentSpec(
        name="agentgym:webshop",
        summary="Buy what an instruction asks for in a text web shop, in up to 10 rounds",
        daily_rate=100.0,
        data_length=INSTRUCTIONS,
        max_rounds=MAX_ROUNDS,
        licence="Apache-2.0",
        source="products of our own; pages and reward as published by princeton-nlp/WebShop and WooooDyy/AgentGym",
        chance_score=0.002,
        tasks_are_drawn=True,
    )

    async def _begun(self, index: int) -> WebShopEpisode:
        await asyncio.to_thread(load_shop)
        return WebShopEpisode(shopping_task(index))

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        seen = conversation[-1].content
        if kind == "random":
            return _any_action(seen, rng)
        if kind == "greedy":
            return _first_hit(seen)
        await asyncio.to_thread(load_shop)
        return next_action(shopping_task(index).actions(), conversation, _BUYING)


def webshop() -> WebShopEnvironment:
    """Return `agentgym:webshop`.

    Raises:
        MissingExtraError: if rapidfuzz, used to compare texts, is not installed.
    """
    require_rapidfuzz()
    return WebShopEnvironment()


def _any_action(seen: str, rng: random.Random) -> str:
    """Return a random available action; a search is for two random words from the names of the shop's kinds."""
    action = rng.choice(_available(seen))
    if action != SEARCHING:
        return action
    words = sorted({word for kind in kinds() for word in kind.name.split()})
    return f"search[{' '.join(rng.sample(words, 2))}]"


def _first_hit(seen: str) -> str:
    """Return a search for the whole instruction, a click on the first product found, or the purchase."""
    available = _available(seen)
    if SEARCHING in available:
        return f"search[{seen.rpartition('Instruction: [SEP] ')[2].partition(' [SEP] ')[0]}]"
    return _BUYING if _BUYING in available else next(text for text in available if text.startswith("click[hg"))


def _available(seen: str) -> list[str]:
    listed: list[str] = json.loads(seen.rpartition("\nAvailable actions: ")[2])
    return listed
