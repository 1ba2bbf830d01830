"""The tasks of sciworld: which experiment, and which variation of it, stands behind an index."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

VARIATIONS: Final = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
}
"""How many variations each experiment has, in ScienceWorld's order.

AgentGym leaves out ScienceWorld's tasks 5-1, 5-2, 9-1, 9-2, 9-3, 10-1 and 10-2 (growing, inclined planes, genetics).
"""

DATA_LENGTH: Final = sum(VARIATIONS.values())

MAX_ROUNDS: Final = 40
"""Replies per episode. Of 69 solutions of ScienceWorld's own, three for each experiment, 28 are done within AgentGym's
10 actions, 53 within 30 and 62 within 40; the longest of the others takes 90, and earns a part of the score by then."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One task of ScienceWorld."""

    name: str
    variation: int

    def __str__(self) -> str:
        return f"{self.name}, variation {self.variation}"


def experiment_at(index: int) -> Experiment:
    """Return task `index`, modulo the number of tasks.

    First the variation 0 of every experiment, then the variation 1 of every one, and so on: AgentGym lists them one
    experiment after the other, with which the first days of a campaign would ask for nothing but boiling.
    """
    return _in_order()[index % DATA_LENGTH]


@functools.cache
def _in_order() -> tuple[Experiment, ...]:
    rounds = range(max(VARIATIONS.values()))
    return tuple(Experiment(name, number) for number in rounds for name, count in VARIATIONS.items() if number < count)
