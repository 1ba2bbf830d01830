"""The search of the shop: BM25 in whole numbers, so that the order of the hits is the same on every machine.

SQLite has BM25 too, in floating point, and not in every build of Python; a last digit must not change a task.
"""

from __future__ import annotations

import heapq
import math
import re
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headgate_environments.webshop.catalogue import Product, catalogue

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


class _Shared:
    """The one index of the process, made by whoever searches first."""

    def __init__(self) -> None:
        self._index: SearchIndex | None = None
        self._lock = threading.Lock()  # many episodes begin at once; each would make one

    def get(self) -> SearchIndex:
        with self._lock:
            if self._index is None:
                self._index = SearchIndex([_document(product) for product in catalogue()])
            return self._index


_SHARED: Final = _Shared()


def load_shop() -> None:
    """Make the catalogue and its index unless they are there: 0.35 s of processor time, once per process."""
    _SHARED.get()


def search(text: str) -> tuple[Product, ...]:
    """Return the products that match `text` best, at most `MAX_HITS`."""
    products = catalogue()
    return tuple(products[number] for number in _SHARED.get().hits(text))


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
