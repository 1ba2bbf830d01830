"""One page of a long list: filters, order and page number of an address, so that a link shows what its sender saw."""

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
        items: on this page.
        number: of the page, from 1.
        count: of pages, at least 1.
        total: of items in the whole list.
        first: number of the first item, from 1; 0 where there is none.
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
    """Return the page that an address asks for; the last one where it asks for one beyond it."""
    count = max(1, -(-len(items) // size))
    number = min(max(1, number_in(query, name, 1)), count)
    begin = (number - 1) * size
    return Page(items[begin : begin + size], number, count, len(items), begin + 1 if items else 0)


def number_in(query: QueryParams, name: str, default: int) -> int:
    """Return a whole number of an address; `default` where there is none."""
    text = query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else default


def link(path: str, query: QueryParams, **changes: object) -> str:
    """Return an address with some of its fields changed; None takes one out. It keeps no page number."""
    kept = {name: value for name, value in query.items() if name not in {"page", "columns"} and value}
    changed = kept | {name: str(value) for name, value in changes.items() if value is not None}
    left = {name: value for name, value in changed.items() if changes.get(name, "") is not None}
    return f"{path}?{urlencode(left)}"
