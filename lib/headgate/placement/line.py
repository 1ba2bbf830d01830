"""The waiting line: bands first; inside a band, priority that ages with waiting.

Ageing is linear, so of two requests that both wait the order never changes: the line is kept sorted by a key that does
not depend on the time, and a band is never left by ageing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import floor

from headgate.placement.eligibility import promoted_band
from headgate.placement.occupancy import Occupancy
from headgate.placement.rules import PreemptionRules

Key = tuple[int, float, int]


def band_of(priority: float) -> int:
    """Return the band of a priority: its whole part."""
    return floor(priority)


@dataclass(slots=True)
class Line:
    """Waiting requests in the order in which they are looked at. Owned by the ledger."""

    ageing_per_s: float
    _keys: list[tuple[Key, str]] = field(default_factory=list)
    _key_of: dict[str, Key] = field(default_factory=dict)

    def key(self, waiting: Occupancy, rules: PreemptionRules) -> Key:
        """Return what orders a request: band, aged priority, order of arrival; smallest first."""
        aged = waiting.request.priority - self.ageing_per_s * waiting.submitted_at
        return (-promoted_band(waiting, rules), -aged, waiting.order)

    def add(self, waiting: Occupancy, rules: PreemptionRules) -> None:
        """Let a request stand in line."""
        key = self.key(waiting, rules)
        insort(self._keys, (key, waiting.request_id))
        self._key_of[waiting.request_id] = key

    def discard(self, request_id: str) -> None:
        """Take a request out, if it stands there."""
        key = self._key_of.pop(request_id, None)
        if key is not None:
            del self._keys[bisect_left(self._keys, (key, request_id))]

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._key_of

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter([request_id for _, request_id in self._keys])
