"""What a fair queue is made of: its items, what it says of them, its groups and its lanes."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar


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


@dataclass(slots=True)
class Selection(Generic[T]):
    """An item that could be served next. Nothing has changed yet; `commit` takes it, once.

    Not frozen, because one is made per item: that takes four times as long to build.
    """

    item: T
    group: Group[T]
    version: int
    tag: float

    @property
    def lane(self) -> str:
        """Name of the lane that the item waits in."""
        return self.group.lane.name


@dataclass(frozen=True, slots=True)
class StaleSelection:
    """A selection that can no longer be committed: the head of its group or the state of its lane has changed."""

    item_id: str
    reason: str


Owner = TypeVar("Owner")

Entry = tuple[float, int, Owner]
"""A place in a heap: tag, version, owner. The owner's `entry` is the one that counts; others are out of date."""

_LEAST_S: Final = 0.001
"""What a service is charged at least: whose services take no time is not served for ever."""

UNLISTED: Entry[Any] = (0.0, -1, None)
"""The entry of what is in no heap."""


@dataclass(slots=True, eq=False)
class Lane:
    """Groups whose head needs the same endpoint.

    Attributes:
        name: what `lane_of` returns.
        is_open: whether its groups may be served.
        rank: open lanes of a lower one go first.
        offset: what the tags of its groups are relative to.
        closed_at: virtual time of its closing.
        heap: entries of its groups.
        entry: its own in the heap of its rank, at the smallest tag; none while it is closed and something has changed.
        kept: length of `heap` after it was last swept.
    """

    name: str
    is_open: bool = True
    rank: int = 0
    offset: float = 0.0
    closed_at: float = 0.0
    heap: list[Entry[Group[Any]]] = field(default_factory=list)
    entry: Entry[Lane] = UNLISTED
    kept: int = 0


@dataclass(slots=True, eq=False)
class Group(Generic[T]):
    """Items of one fairness key, and its entry in the heap of the lane that the first of them needs.

    Attributes:
        name: the key.
        lane: where it is listed.
        weight: of the item that came last.
        left_at: its next tag in virtual time, as it was when it had no items any more.
        entry: its own in the heap of its lane.
        items: in the order in which they are served: by priority, and first come, first served.
        charge: of its next service, at weight 1.
    """

    name: str
    lane: Lane
    weight: float = 1.0
    left_at: float = 0.0
    entry: Entry[Any] = UNLISTED
    items: deque[T] = field(default_factory=deque)
    charge: float = 1.0

    def held(self, seconds: float) -> None:
        """Note how long a service was held: half of the next charge, so that a slow time is forgiven soon."""
        self.charge = (self.charge + max(seconds, _LEAST_S)) / 2

    def add(self, item: T) -> None:
        """Add an item behind those of its priority: O(1), but for one that goes before others."""
        items = self.items
        if not items or item.priority <= items[-1].priority:
            items.append(item)
        else:
            items.insert(bisect_right(items, -item.priority, key=lambda other: -other.priority), item)
