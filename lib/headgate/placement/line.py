"""The waiting line: bands first; inside a band, priority that ages with waiting.

Ageing is linear, so of two requests that both wait the order never changes: the line is kept sorted by a key that does
not depend on the time, and a band is never left by ageing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.placement.eligibility import promoted_band
from headgate.placement.occupancy import Occupancy
from headgate.placement.rules import PreemptionRules

Key = tuple[int, float, int]
Kind = tuple[object, ...]


def kind_of(waiting: Occupancy) -> Kind:
    """Return what two requests must share for the one to find no place where the other found none."""
    wanted = waiting.request
    return (
        wanted.pool,
        wanted.bundles,
        wanted.strategy,
        tuple(sorted(wanted.node_labels.items())),
        tuple(sorted(wanted.labels.items())),
        wanted.priority,
        wanted.preemptible,
    )


@dataclass(slots=True)
class Line:
    """Waiting requests in the order in which they are looked at. Owned by the ledger.

    Each stands with the number of its kind, so that a pass over a long line compares numbers and not requests; a
    number is never given to another kind.
    """

    ageing_per_s: float
    _standing: list[tuple[Key, str, int]] = field(default_factory=list)
    _place_of: dict[str, tuple[Key, Kind]] = field(default_factory=dict)
    _numbers: dict[Kind, int] = field(default_factory=dict)
    _counts: dict[Kind, int] = field(default_factory=dict)
    _last_number: int = 0

    def key(self, waiting: Occupancy, rules: PreemptionRules) -> Key:
        """Return what orders a request: band, aged priority, order of arrival; smallest first."""
        aged = waiting.request.priority - self.ageing_per_s * waiting.submitted_at
        return (-promoted_band(waiting, rules), -aged, waiting.order)

    def add(self, waiting: Occupancy, rules: PreemptionRules) -> None:
        """Let a request stand in line."""
        key, kind = self.key(waiting, rules), kind_of(waiting)
        if kind not in self._numbers:
            self._last_number += 1
            self._numbers[kind] = self._last_number
        self._counts[kind] = self._counts.get(kind, 0) + 1
        insort(self._standing, (key, waiting.request_id, self._numbers[kind]))
        self._place_of[waiting.request_id] = (key, kind)

    def discard(self, request_id: str) -> None:
        """Take a request out, if it stands there."""
        if request_id not in self._place_of:
            return
        key, kind = self._place_of.pop(request_id)
        del self._standing[bisect_left(self._standing, (key, request_id))]
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._counts[kind], self._numbers[kind]

    def ahead_of(self, request_id: str) -> int:
        """Return how many stand before a request that waits."""
        return bisect_left(self._standing, (self._place_of[request_id][0], request_id))

    def number_of(self, request_id: str) -> int:
        """Return the number of the kind of a request that waits."""
        return self._numbers[self._place_of[request_id][1]]

    def walk(self) -> Iterator[tuple[str, int]]:
        """Return each request with the number of its kind; the one that was returned last may be taken out."""
        at = 0
        while at < len(self._standing):
            standing = self._standing[at]
            yield standing[1], standing[2]
            if at < len(self._standing) and self._standing[at] is standing:
                at += 1

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._place_of

    def __len__(self) -> int:
        return len(self._standing)
