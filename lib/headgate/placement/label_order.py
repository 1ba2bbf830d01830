"""Which labels outrank which: the order that label rules make, without cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from headgate.placement.errors import InvalidPlacementError

LabelRules = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Label key -> value -> the values that it goes before."""

_WITHOUT_CYCLE: Final = "Take one step of the cycle out: what may stop another must never be stopped by it."


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """A strict partial order of label sets, made by `label_order`.

    The first key in the order of the rules at which two sets differ decides, as in a dictionary; values that the rules
    of a key do not name count as one. Asking any key to decide instead would let two sets outrank each other.

    Attributes:
        below: label key -> value -> every value that it outranks, directly or through others.
        longest_chain: how many steps down the longest chain of label sets has; 0 without rules.
    """

    below: Mapping[str, Mapping[str, frozenset[str]]]
    longest_chain: int

    def outranks(self, labels: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Tell whether work with `labels` goes before work with `others`."""
        for key, below in self.below.items():
            mine, theirs = labels.get(key), others.get(key)
            mine, theirs = (value if value in below else None for value in (mine, theirs))
            if mine != theirs:
                return mine is not None and theirs in below[mine]
        return False


def label_order(rules: LabelRules) -> LabelOrder:
    """Return the order of label rules.

    Raises:
        InvalidPlacementError: a value outranks itself, directly or through others.
    """
    heights: list[int] = []
    below: dict[str, dict[str, frozenset[str]]] = {}
    for key, steps in rules.items():
        closed = _closed(key, steps)
        below[key] = closed
        heights.append(_height(closed))
    return LabelOrder(below, prod(height + 1 for height in heights) - 1)


def _closed(key: str, steps: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    done: dict[str, frozenset[str]] = {}

    def visit(value: str, path: tuple[str, ...]) -> frozenset[str]:
        if value in path:
            cycle = " > ".join((*path[path.index(value) :], value))
            raise InvalidPlacementError(
                f"Label rules of {key!r} must have no cycle (got {cycle})", next_step=_WITHOUT_CYCLE
            )
        if value not in done:
            lower = steps.get(value, ())
            done[value] = frozenset(lower).union(*(visit(each, (*path, value)) for each in lower))
        return done[value]

    for value in steps:
        visit(value, ())
    return done


def _height(below: Mapping[str, frozenset[str]]) -> int:
    # In a closed order each chain is a chain of memberships, so the smaller sets are finished first.
    heights: dict[str, int] = {}
    for value in sorted(below, key=lambda each: len(below[each])):
        heights[value] = max((heights[lower] + 1 for lower in below[value]), default=0)
    return max(heights.values(), default=0)
