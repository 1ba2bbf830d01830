"""Places where a job queue can live, and be found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.jobqueue import Store
from headgate.jobqueue.stores import MemoryStore, open_store


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a store.

    Attributes:
        kind: memory, sqlite or postgres.
        url: of it.
        open: returns a store there that nobody owns yet; always the same one in memory.
    """

    kind: str
    url: str
    open: Callable[[], Store]


def place_at(url: str) -> Place:
    """Return the place of a URL."""
    kind = url.partition(":")[0].replace("postgresql", "postgres")
    if kind == "memory":
        store = MemoryStore()
        return Place(kind, url, lambda: store)
    return Place(kind, url, lambda: open_store(url))
