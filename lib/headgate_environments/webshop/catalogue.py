"""What the shop sells: products drawn by a grammar from the data of `goods.toml`, the same on every machine."""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
import math
import random
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate_environments.webshop.reward import Goods, base_colour

GOODS_FILE: Final = Path(__file__).with_name("goods.toml")
PRODUCTS_PER_KIND: Final = 50
BRANDS_PER_KIND: Final = 8
ATTRIBUTES_PER_PRODUCT: Final = 4
MAX_OPTION_VALUES: Final = 6

_SYLLABLES: Final = (
    ("Al", "Bren", "Cor", "Dun", "El", "Fen", "Gar", "Hal", "Is", "Jor", "Kel", "Lum", "Mer", "Nor", "Os", "Per"),
    ("a", "be", "do", "fi", "ga", "li", "mo", "ra", "si", "tu", "va", "zo"),
    ("dan", "fex", "gard", "kin", "lor", "mont", "nox", "quil", "rell", "stan", "tive", "wyn"),
)
"""Brands are made of one of each; every kind has brands of its own, so that no brand makes two kinds alike."""

_PRAISE: Final = (
    "Arrived early.",
    "Just as shown.",
    "My second one.",
    "Good value.",
    "Well packed.",
    "Would order again.",
)
_BLAME: Final = ("Delivery took long.", "Box was dented.", "Smaller than I thought.", "Manual is short.")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing that is sold.

    Attributes:
        name: what people call and search it.
        path: department and shelf.
        uses: what it may be for; its products name two.
        attributes: of its shelf; its products have some.
        options: what the buyer chooses, with all values there are.
        prices: the lowest and the highest, in dollars.
    """

    name: str
    path: tuple[str, ...]
    uses: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Product:
    """One thing in the shop. `number` is its place in the catalogue, `item_id` what it is clicked by."""

    number: int
    item_id: str
    kind: Kind
    brand: str
    uses: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    price_cents: int

    @property
    def price(self) -> float:
        """In dollars, whatever options are chosen, as in WebShop."""
        return self.price_cents / 100

    @property
    def title(self) -> str:
        """Brand, kind, half of its attributes, and uses."""
        told = ", ".join(text.title() for text in self.attributes[: ATTRIBUTES_PER_PRODUCT // 2])
        return f"{self.brand} {self.kind.name.title()}, {told}, for {' and '.join(map(str.title, self.uses))}"

    @property
    def features(self) -> tuple[str, ...]:
        """One line for each attribute and option."""
        choices = (f"choose among {len(values)} values of {name}" for name, values in self.options)
        return (*(f"{self.brand} quality: {text}" for text in self.attributes), *choices)

    @property
    def description(self) -> str:
        """A sentence that names the uses and what the title leaves out."""
        rest = " and ".join(self.attributes[ATTRIBUTES_PER_PRODUCT // 2 :])
        return f"{self.kind.name.capitalize()} by {self.brand} for {' or '.join(self.uses)}: {rest}."

    @property
    def reviews(self) -> tuple[str, ...]:
        """What buyers wrote; says nothing of attributes."""
        rng = random.Random(f"webshop:reviews:{self.item_id}")
        return tuple(f"{rng.randint(3, 5)} stars: {rng.choice(_PRAISE)} {rng.choice(_BLAME)}" for _ in range(2))

    @property
    def goods(self) -> Goods:
        """The product as the reward sees it."""
        return Goods(
            query=self.kind.name,
            categories=frozenset((*self.kind.path, self.kind.name)),
            nouns=frozenset((self.brand.lower(), *self.kind.name.split(), *self.uses)),
            attributes=self.attributes,
            texts=(self.title.lower(), " ".join(self.features).lower(), self.description.lower()),
        )


_MAKING: Final = threading.RLock()  # many episodes open at once; each would make a catalogue and an index


def catalogue() -> tuple[Product, ...]:
    """Return all products in the order of their numbers; the first call takes 0.15 s."""
    with _MAKING:
        return _products()


@functools.cache
def _products() -> tuple[Product, ...]:
    return tuple(_drawn(kinds()))


@functools.cache
def kinds() -> tuple[Kind, ...]:
    """Return what kinds of things there are, as `goods.toml` lists them."""
    goods = tomllib.loads(GOODS_FILE.read_text(encoding="utf-8"))
    return tuple(_kind(shelf, listed, goods["options"]) for shelf in goods["shelves"] for listed in shelf["kinds"])


def _kind(shelf: Mapping[str, Any], listed: Mapping[str, Any], options: Mapping[str, list[str]]) -> Kind:
    low, high = listed["prices"]
    return Kind(
        name=listed["name"],
        path=tuple(shelf["path"]),
        uses=tuple(listed["uses"]),
        attributes=tuple(shelf["attributes"]),
        options=tuple((name, tuple(options[name])) for name in listed["options"]),
        prices=(low, high),
    )


def _drawn(listed: tuple[Kind, ...]) -> Iterator[Product]:
    rng = random.Random("webshop:catalogue")
    brands = ["".join(parts) for parts in itertools.product(*_SYLLABLES)]
    rng.shuffle(brands)
    for number, kind in enumerate(kind for kind in listed for _ in range(PRODUCTS_PER_KIND)):
        first_brand = number // PRODUCTS_PER_KIND * BRANDS_PER_KIND
        yield Product(
            number=number,
            item_id="HG" + hashlib.sha256(f"webshop:{number}".encode()).hexdigest()[:8].upper(),
            kind=kind,
            brand=rng.choice(brands[first_brand : first_brand + BRANDS_PER_KIND]),
            uses=tuple(rng.sample(kind.uses, 2)),
            attributes=tuple(rng.sample(kind.attributes, ATTRIBUTES_PER_PRODUCT)),
            options=tuple((name, _offered(values, rng)) for name, values in kind.options),
            price_cents=100 * rng.randrange(*kind.prices) + rng.choice((49, 95, 99)),
        )


def _offered(values: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    """Return some of `values` in their order, of each base colour one at most: the reward takes all shades for one."""
    drawn = rng.sample(values, min(len(values), rng.randint(3, MAX_OPTION_VALUES)))
    one_of_each = {base_colour(value): value for value in drawn}
    return tuple(value for value in values if value in one_of_each.values())


MAX_HITS: Final = 50
"""As many as WebShop shows."""

MAX_WORDS: Final = 40
"""Further different words of a search are not looked up: none may take long."""

_RARITY_UNIT: Final = 1_000
"""How finely the rarity of a word is counted."""

_WORD: Final = re.compile(r"[a-z0-9]+")
_UNSEARCHED: Final = frozenset(
    ("a", "an", "and", "by", "for", "from", "in", "is", "it", "of", "on", "or", "the", "with")
)


class SearchIndex:
    """Which documents hold which words, and what each is worth there. Never changes; shared by all episodes.

    A word's worth is BM25 with the parameters of Anserini (k1 = 0.9, b = 0.4), which WebShop searches with.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        counts = [Counter(words_in(document)) for document in documents]
        lengths = [count.total() for count in counts]
        places: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                places.setdefault(word, []).append((number, times))
        # worth = rarity * times * (k1 + 1) / (times + k1 * (1 - b + b * length / mean length)), the fraction expanded
        # by 1000 times the total length, so that nothing is rounded but the worth itself.
        total = sum(lengths)
        constants = [540 * total + 360 * len(lengths) * length for length in lengths]
        self._worth: dict[str, tuple[tuple[int, int], ...]] = {}
        for word, found in places.items():
            gain, each = 1_900 * total * _rarity(len(found), len(lengths)), 1_000 * total
            self._worth[word] = tuple((at, gain * times // (each * times + constants[at])) for at, times in found)

    def hits(self, text: str) -> list[int]:
        """Return the numbers of the documents that match `text` best, at most `MAX_HITS`, equal ones by number."""
        scores: dict[int, int] = {}
        for word in list(dict.fromkeys(words_in(text)))[:MAX_WORDS]:
            for number, worth in self._worth.get(word, ()):
                scores[number] = scores.get(number, 0) + worth
        return heapq.nsmallest(MAX_HITS, scores, key=lambda number: (-scores[number], number))


@functools.cache
def _index() -> SearchIndex:
    return SearchIndex([_document(product) for product in catalogue()])


def load_shop() -> None:
    """Make the catalogue and its index unless they are there: 0.35 s of processor time, once per process."""
    with _MAKING:
        _index()


def search(text: str) -> tuple[Product, ...]:
    """Return the products that match `text` best, at most `MAX_HITS`."""
    load_shop()
    products = catalogue()
    return tuple(products[number] for number in _index().hits(text))


def words_in(text: str) -> list[str]:
    """Return the words of `text` that are searched, in small letters and without a plural's `s`."""
    return [_singular(word) for word in _WORD.findall(text.lower()) if word not in _UNSEARCHED]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _rarity(places: int, documents: int) -> int:
    return round(_RARITY_UNIT * math.log(1 + (documents - places + 0.5) / (places + 0.5)))


def _document(product: Product) -> str:
    values = (value for _, offered in product.options for value in offered)
    return " ".join((product.title, *product.attributes, *values))
