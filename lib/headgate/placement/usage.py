"""What each pool has of its quota in use, and why a free group of it is not given to work that waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.book import Book
from headgate.placement.ladder import LOAN, RESERVED, WIDE, by_right
from headgate.placement.occupancy import Occupancy
from headgate.placement.passing import Passing

EXPLAINED: Final = 20
"""So many entries a pool are looked up: the first waiting request of each kind."""


@dataclass(frozen=True, slots=True)
class NotGiven:
    """A request that waits beside free groups of its pool; `says` is why it gets none of these, as in `why`."""

    request_id: str
    group_ids: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool's quota, and what its work holds: by right in reserved groups, in these on loan, and in dynamic ones.

    Free groups are not charged. `not_given` names who waits beside one.
    """

    pool: str
    quota: Amounts
    reserved: Amounts
    lent: Amounts
    dynamic: Amounts
    not_given: tuple[NotGiven, ...]

    @property
    def in_use(self) -> Amounts:
        """All that is charged to the pool."""
        return self.reserved + self.lent + self.dynamic


def usage(book: Book, passing: Passing, now: float) -> tuple[PoolUsage, ...]:
    """Return how much of each pool's quota is in use, by what, and who waits beside a free group."""
    not_given = _not_given(book, passing, now)
    return tuple(
        PoolUsage(pool.name, pool.quota, **_held(book, pool.name), not_given=tuple(not_given.get(pool.name, ())))
        for pool in book.pools.values()
    )


def _held(book: Book, pool: str) -> dict[str, Amounts]:
    held = dict.fromkeys(("reserved", "lent", "dynamic"), NOTHING)
    for request_id in book.placed.get(pool, set()) - book.freed:
        request = book.requests[request_id]
        group = book.groups[request.group_id]
        held["dynamic" if group.reserved is None else "lent" if request.on_loan else "reserved"] += group.size
    return held


def _not_given(book: Book, passing: Passing, now: float) -> dict[str, list[NotGiven]]:
    waiting: dict[str, list[NotGiven]] = {group.pool: [] for group in book.free_groups()}
    seen: set[int] = set()
    for request_id, kind in passing.life.line.walk() if waiting else ():
        request = book.requests[request_id]
        told = waiting.get(request.request.pool)
        if told is not None and kind not in seen and len(told) < EXPLAINED:
            seen.add(kind)
            told += _refused(book, passing, request, now)
    return waiting


def _refused(book: Book, passing: Passing, request: Occupancy, now: float) -> list[NotGiven]:
    pool = book.pools[request.request.pool]
    says = {each.step: each.says for each in passing.refusals(request, now)}
    groups: dict[str, list[str]] = {}
    for group in book.free_groups():
        step = WIDE if group.reserved is None else RESERVED if by_right(request, pool) else LOAN
        if group.pool == pool.name and step in says:
            groups.setdefault(says[step], []).append(group.group_id)
    return [NotGiven(request.request_id, tuple(sorted(names)), reason) for reason, names in groups.items()]
