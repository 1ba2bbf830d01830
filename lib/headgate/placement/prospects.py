"""What a request could get at the very most, asked before each step is searched: most of a long line has no hope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from headgate.placement.book import Book
from headgate.placement.budgets import Budgets
from headgate.placement.fitting import Room, covers, fits, give, place
from headgate.placement.group import Group
from headgate.placement.node import NodeView
from headgate.placement.occupancy import Occupancy
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.preempting import Preempting
from headgate.placement.rules import PreemptionRules

_Class = tuple[str, float, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Prospect:
    """Everything that requests of one pool, priority and labels could have, if they got all of it.

    Attributes:
        quota: what the pool could still hold with all that may be stopped gone.
        room: the same for the nodes, with idle dynamic groups gone as well.
        groups: groups that could be taken as they are, beside what `room` tells.
        makes: whether a group may be made, with all gone that may go.
        until: when somebody else may be stopped; infinite where that is never by itself.
    """

    quota: Mapping[str, int]
    room: Room
    groups: tuple[Group, ...]
    makes: bool
    until: float

    def allows(self, shape: GroupShape, nodes: Mapping[str, NodeView]) -> bool:
        """Tell whether there is any hope for a shape; without it no step finds a place."""
        if not fits(self.quota, shape.size):
            return False
        if self.makes and place(shape, self.room, nodes) is not None:
            return True
        return any(covers(group.shape, group.nodes, shape, nodes) for group in self.groups)


@dataclass(slots=True)
class Prospects:
    """Prospects as the book stands at one moment; to be dropped when anybody is placed.

    Who may be stopped for whom depends on pool, priority and labels alone, but for pairs that met lately; those are
    left out, which makes a prospect too good at most.
    """

    book: Book
    rules: PreemptionRules
    budgets: Budgets
    now: float
    _known: dict[_Class, Prospect] = field(default_factory=dict)

    def of(self, waiting: Occupancy, pool: Pool) -> Prospect:
        """Return the prospect of a request."""
        request = waiting.request
        key = (request.pool, request.priority, tuple(sorted(request.labels.items())))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look(waiting, pool)
        return known

    def _look(self, waiting: Occupancy, pool: Pool) -> Prospect:
        book = self.book
        anybody = replace(waiting, request=replace(waiting.request, request_id=""))
        preempting = Preempting(book, anybody, pool, self.rules, self.budgets, (), self.now)
        victims = [book.requests[each.request_id] for each in preempting.candidates()]
        idle = book.free_groups()
        going = [*idle, *(book.groups[each.group_id] for each in victims)]
        quota = dict(book.quota_left(pool).units)
        room: Room = {node: dict(units) for node, units in book.room.items()}
        is_short = any(units < 0 for free in room.values() for units in free.values())
        for victim in victims:
            if victim.request.pool == pool.name and victim.request_id not in book.freed:
                give(quota, book.groups[victim.group_id].size)
        made = book.dynamic_count(pool.name)
        for group in going:
            if group.reserved is None and group.group_id not in book.leaving:
                made -= group.pool == pool.name
                for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
                    if node in room:
                        give(room[node], bundle)
        makes = pool.max_dynamic is None or made < pool.max_dynamic
        as_they_are = [
            group
            for group in going
            if group.pool == pool.name and (group.reserved is not None or is_short or not makes)
        ]
        until = inf if preempting.until is None else preempting.until
        return Prospect(quota, room, tuple(as_they_are), makes, until)
