"""What each pool has of its quota in use, and why a free group of it is not given to work that waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.placement.amounts import Amounts, total
from headgate.placement.book import Book
from headgate.placement.ladder import LOAN, RESERVED, WIDE, by_right
from headgate.placement.occupancy import Occupancy
from headgate.placement.passing import Passing

EXPLAINED: Final = 20
"""So many waiting requests per pool are asked why they do not get a free group: the first of each kind."""


@dataclass(frozen=True, slots=True)
class NotGiven:
    """A request that waits beside free groups of its pool: `says` is why it gets none of these, as in `why`."""

    request_id: str
    group_ids: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool's quota, and what is in use of it; free groups are not charged.

    Attributes:
        pool: its name.
        quota: what its work may hold together.
        reserved: what work holds in reserved groups that are its by right.
        lent: what work holds in reserved groups on loan.
        dynamic: what work holds in groups that were made for it.
        not_given: requests that wait beside a free group.
    """

    pool: str
    quota: Amounts
    reserved: Amounts
    lent: Amounts
    dynamic: Amounts
    not_given: tuple[NotGiven, ...] = ()

    @property
    def in_use(self) -> Amounts:
        """All that is charged to the pool."""
        return self.reserved + self.lent + self.dynamic


def usage(book: Book, passing: Passing, now: float) -> tuple[PoolUsage, ...]:
    """Return how much of each pool's quota is in use, by what, and who waits beside a free group."""
    not_given = _not_given(book, passing, now)
    return tuple(_used(book, pool, tuple(not_given.get(pool, ()))) for pool in book.pools)


def _used(book: Book, pool: str, not_given: tuple[NotGiven, ...]) -> PoolUsage:
    charged = [book.requests[each] for each in book.placed.get(pool, set()) - book.freed]
    return PoolUsage(
        pool,
        book.pools[pool].quota,
        reserved=_sum(book, (each for each in charged if _is_reserved(book, each) and not each.on_loan)),
        lent=_sum(book, (each for each in charged if _is_reserved(book, each) and each.on_loan)),
        dynamic=_sum(book, (each for each in charged if not _is_reserved(book, each))),
        not_given=not_given,
    )


def _is_reserved(book: Book, request: Occupancy) -> bool:
    return book.groups[request.group_id].reserved is not None


def _sum(book: Book, requests: Iterable[Occupancy]) -> Amounts:
    return total(book.groups[each.group_id].size for each in requests)


def _not_given(book: Book, passing: Passing, now: float) -> dict[str, list[NotGiven]]:
    free = book.free_groups()
    waiting: dict[str, list[NotGiven]] = {group.pool: [] for group in free}
    seen: set[int] = set()
    for request_id, kind in passing.life.line.walk() if waiting else ():
        request = book.requests[request_id]
        told = waiting.get(request.request.pool)
        if told is None or kind in seen or len(told) >= EXPLAINED:
            continue
        seen.add(kind)
        told += _refused(book, passing, request, now)
    return waiting


def _refused(book: Book, passing: Passing, request: Occupancy, now: float) -> list[NotGiven]:
    pool = book.pools[request.request.pool]
    says = {each.step: each.says for each in passing.refusals(request, now)}
    reserved = RESERVED if by_right(request, pool) else LOAN
    groups: dict[str, list[str]] = {}
    for group in book.free_groups():
        step = WIDE if group.reserved is None else reserved
        if group.pool == pool.name and step in says:
            groups.setdefault(says[step], []).append(group.group_id)
    return [NotGiven(request.request_id, tuple(sorted(names)), reason) for reason, names in groups.items()]
