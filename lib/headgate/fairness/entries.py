"""What a fair queue is made of: its items, what it says of them, its groups and its lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar


class Queueable(Protocol):
    """What a fair queue can hold: it belongs to a group that has a weight, and goes before others by priority."""

    @property
    def group(self) -> str:
        """Fairness key."""
        ...

    @property
    def weight(self) -> float:
        """Share of the group under contention, > 0."""
        ...

    @property
    def priority(self) -> int:
        """Among the items of one group, higher goes first."""
        ...


T = TypeVar("T", bound=Queueable)


class Selection(NamedTuple, Generic[T]):
    """An item that could be served next. Nothing has changed yet; `commit` takes it, once.

    A named tuple, because one is made per item: a frozen dataclass takes three times as long to build.
    """

    item: T
    lane: str
    version: int
    tag: float = 0.0


@dataclass(frozen=True, slots=True)
class StaleSelection:
    """A selection that can no longer be committed: the head of its group or the state of its lane has changed."""

    item_id: str
    reason: str


@dataclass(slots=True)
class Group(Generic[T]):
    """Items of one fairness key. `tag` is relative to the offset of `lane`; no two listings share a `version`."""

    name: str
    weight: float
    heap: list[tuple[int, int, T]] = field(default_factory=list)
    tag: float = 0.0
    lane: str = ""
    version: int = 0


@dataclass(slots=True)
class Lane:
    """Groups whose head needs the same endpoint. `kept` is the length of `heap` after it was last swept."""

    name: str
    is_open: bool = True
    rank: int = 0
    offset: float = 0.0
    closed_at: float = 0.0
    heap: list[tuple[float, int, str]] = field(default_factory=list)
    version: int = 0
    kept: int = 0
