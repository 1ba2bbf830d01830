"""Reading `affine:sat`: a decision per variable, true or false."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from headgate.core import Message
from headgate.placement.roles.skill import Features

_LITERAL: Final = re.compile(r"(¬?)x(\d{1,9})\b")


class SatisfiabilitySkill:
    """Decides each variable by how often it stands in the formula with and without "not"."""

    @property
    def features(self) -> int:
        """Columns of every decision."""
        return 3

    def decisions(self, conversation: Sequence[Message]) -> list[Features]:
        """Return a decision for each variable: its first alternative is True, the second False."""
        counts = _occurrences(conversation)
        return [_both(counts[name]) for name in sorted(counts)]

    def reply(self, conversation: Sequence[Message], chosen: Sequence[int]) -> str:
        """Return the assignment."""
        names = sorted(_occurrences(conversation))
        return ", ".join(f"x{name}={alternative == 0}" for name, alternative in zip(names, chosen, strict=True))


def _occurrences(conversation: Sequence[Message]) -> dict[int, Counter[bool]]:
    """Return for each variable how often it stands plain (True) and negated (False)."""
    formula = conversation[0].content.partition("\n")[2].partition("\n")[0]
    counts: dict[int, Counter[bool]] = {}
    for negated, name in _LITERAL.findall(formula):
        counts.setdefault(int(name), Counter())[not negated] += 1
    return counts


def _both(count: Counter[bool]) -> Features:
    lean = (count[True] - count[False]) / (count[True] + count[False])
    return np.array([[lean, abs(lean), 1.0], [-lean, abs(lean), 0.0]])
