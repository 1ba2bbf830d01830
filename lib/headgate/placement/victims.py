"""Which running work to stop: the cheapest set that makes enough room."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

Sufficient = Callable[[frozenset[str]], bool]
"""Whether stopping these requests makes enough room; more requests never make less room."""

EXACT_UP_TO: Final = 12
"""With so many candidates the best set is searched exactly, with some tens of questions as a rule."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Running work that may be stopped.

    Attributes:
        request_id: unique among the candidates.
        band: whole part of its priority; lower bands are stopped first.
        cost: work that is lost, >= 0.
        started_at: monotonic seconds; of equals the one that started last is stopped.
    """

    request_id: str
    band: int
    cost: float
    started_at: float


Worth = tuple[float, int, float, tuple[str, ...]]


def cheapest_set(
    candidates: Sequence[Candidate], sufficient: Sufficient, *, exact_up_to: int = EXACT_UP_TO
) -> tuple[Candidate, ...] | None:
    """Return the set to stop, lowest band and cheapest first, or None if all together are not enough.

    The set has the lowest highest band that is enough, then the least cost, then the fewest members, then the latest
    start among them. With more than `exact_up_to` candidates in those bands it is a good one and not always the best;
    no member of it is superfluous.

    Args:
        candidates: what may be stopped.
        sufficient: whether a set is enough; monotone. It is asked rarely, and never twice about the same set.
        exact_up_to: how many candidates are searched exactly.
    """
    in_order = sorted(candidates, key=lambda each: (each.band, each.cost, -each.started_at, each.request_id))
    search = _Search(in_order, sufficient)
    if search.enough(0):
        return ()
    if not search.enough(search.everybody):
        return None
    search.keep_lowest_bands()
    best = search.greedy()
    if len(search.among) <= exact_up_to:
        best = search.exact(best)
    return search.members(best)


@dataclass(slots=True)
class _Search:
    """One search; sets are bit masks over `among`. Remembers what it asked, and what follows from it."""

    among: list[Candidate]
    sufficient: Sufficient
    too_small: list[int] = field(default_factory=list)
    large_enough: list[int] = field(default_factory=list)

    @property
    def everybody(self) -> int:
        return (1 << len(self.among)) - 1

    def members(self, mask: int) -> tuple[Candidate, ...]:
        return tuple(each for number, each in enumerate(self.among) if mask >> number & 1)

    def enough(self, mask: int) -> bool:
        if any(mask & known == mask for known in self.too_small):
            return False
        if any(mask & known == known for known in self.large_enough):
            return True
        enough = self.sufficient(frozenset(each.request_id for each in self.members(mask)))
        (self.large_enough if enough else self.too_small).append(mask)
        return enough

    def worth(self, mask: int) -> Worth:
        """Return what is minimised, of sets in the lowest bands that are enough."""
        members = self.members(mask)
        latest = max((each.started_at for each in members), default=0.0)
        return fsum(each.cost for each in members), len(members), -latest, tuple(each.request_id for each in members)

    def keep_lowest_bands(self) -> None:
        """Leave out candidates of higher bands than are needed; what is left is enough."""
        ends = [n for n in range(1, len(self.among)) if self.among[n].band != self.among[n - 1].band]
        ends.append(len(self.among))
        first = bisect_left(ends, True, hi=len(ends) - 1, key=lambda end: self.enough((1 << end) - 1))
        self.among = self.among[: ends[first]]

    def greedy(self) -> int:
        """Return the better of two sets: the cheapest first, and again with the one that was needed last in front."""
        numbers = list(range(len(self.among)))
        first, last = self._grown(numbers)
        numbers.remove(last)
        second, _ = self._grown([last, *numbers])
        return min(first, second, key=self.worth)

    def exact(self, best: int) -> int:
        """Return the best set, by branch and bound from a set that is enough; the dearest are decided first."""
        best_worth = self.worth(best)

        def descend(chosen: int, undecided: int) -> None:
            nonlocal best, best_worth
            worth = self.worth(chosen)
            rest = (1 << undecided) - 1
            if worth[:2] > best_worth[:2] or not self.enough(chosen | rest):
                return
            if undecided:
                descend(chosen, undecided - 1)
                descend(chosen | 1 << (undecided - 1), undecided - 1)
            elif worth < best_worth:
                best, best_worth = chosen, worth

        descend(0, len(self.among))
        return best

    def _grown(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Return a set without superfluous members, taken in this order, and the number that made it enough."""

        def first(count: int) -> int:
            return sum(1 << number for number in numbers[:count])

        count = bisect_left(range(len(numbers)), True, lo=1, key=lambda taken: self.enough(first(taken)))
        mask = first(count)
        for number in reversed(numbers[:count]):
            if self.enough(without := mask & ~(1 << number)):
                mask = without
        return mask, numbers[count - 1]
