"""Bars: what a scenario measured, beside what it is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["at_least", "at_most"]

_NOTHING: Mapping[str, float | str] = {}


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured figure and its bar.

    Attributes:
        id: stable name, e.g. `P1`; the heading that explains it in docs/benchmarks.md.
        what: what the figure is, in words.
        value: what was measured.
        unit: of value and bar.
        bar: what it is held to.
        side: which side of the bar is good.
        beside: what rivals and controls reached in the same run, by name; a text where one was not run.
    """

    id: str
    what: str
    value: float
    unit: str
    bar: float
    side: Side
    beside: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the value is on the good side; a value that is not a number never is."""
        return self.value >= self.bar if self.side == "at_least" else self.value <= self.bar


def at_least(
    name: str, what: str, value: float, bar: float, unit: str, beside: Mapping[str, float | str] = _NOTHING
) -> Bar:
    """Return a bar that a value must reach."""
    return Bar(name, what, value, unit, bar, "at_least", beside)


def at_most(
    name: str, what: str, value: float, bar: float, unit: str, beside: Mapping[str, float | str] = _NOTHING
) -> Bar:
    """Return a bar that a value must not exceed."""
    return Bar(name, what, value, unit, bar, "at_most", beside)
