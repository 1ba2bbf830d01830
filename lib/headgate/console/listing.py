"""One page of a long list: its filters, order and number are in the address, so a link shows what its sender saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        items: items on this page.
        number: number of this page, from 1.
        count: number of pages, at least 1.
        total: number of items in the whole list.
        first: number of the first item, from 1; 0 if there is none.
    """

    items: Sequence[T]
    number: int
    count: int
    total: int
    first: int

    @property
    def last(self) -> int:
        """Number of the last item."""
        return self.first + len(self.items) - 1 if self.items else 0


def page_of(items: Sequence[T], query: QueryParams, size: int, *, name: str = "page") -> Page[T]:
    """Return the page that an address asks for; the last one if it asks for a page beyond it."""
    count = max(1, -(-len(items) // size))
    number = min(max(1, number_in(query, name, 1)), count)
    begin = (number - 1) * size
    return Page(items[begin : begin + size], number, count, len(items), begin + 1 if items else 0)


def number_in(query: QueryParams, name: str, default: int) -> int:
    """Return a whole number from an address; `default` if there is none."""
    text = query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else default


def link(path: str, query: QueryParams, **changes: object) -> str:
    """Return an address with some of its fields changed; None removes one. The page number is dropped."""
    kept = {name: value for name, value in query.items() if name not in {"page", "columns"} and value}
    changed = kept | {name: str(value) for name, value in changes.items() if value is not None}
    left = {name: value for name, value in changed.items() if changes.get(name, "") is not None}
    return f"{path}?{urlencode(left)}"
