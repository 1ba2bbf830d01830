"""The worlds of the grid simulator: walls, a start and subgoals, from the names of task and instance alone."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Cell = tuple[int, int]
"""Row and column."""

Walls = np.ndarray[Any, np.dtype[np.bool_]]

STEPS: Final[tuple[Cell, ...]] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""What one step forward changes, by direction: 0 east, 1 south, 2 west, 3 north. A turn to the right adds one."""

_SIDES: Final = (11, 13, 15, 17)
_SUBGOALS: Final = (3, 4, 5, 6)
_WALL_SHARES: Final = (0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, slots=True)
class Grid:
    """Where an episode takes place.

    Invariant: every subgoal can be reached from the start, and start and subgoals are different cells.

    Attributes:
        walls: true where nobody can stand, the border included; never written to.
        start: where the agent begins.
        direction: where it looks then, as in `STEPS`.
        subgoals: to be reached in this order.
        seed: what the instance's part was drawn from.
    """

    walls: Walls
    start: Cell
    direction: int
    subgoals: tuple[Cell, ...]
    seed: int


def seed_of(task: str, instance: str) -> int:
    """Return the seed of an instance, in [0, 2**32)."""
    return _seed("instance", task, instance)


def draw_grid(task: str, instance: str) -> Grid:
    """Return the grid of an instance: the task gives size, walls and number of subgoals, the instance their places."""
    look = random.Random(_seed("task", task))
    side, subgoals, share = look.choice(_SIDES), look.choice(_SUBGOALS), look.choice(_WALL_SHARES)
    seed = seed_of(task, instance)
    rng = random.Random(seed)
    while True:
        walls = _draw_walls(side, share, rng)
        start = rng.choice(_free_cells(walls))
        # Sorted, since the order of a search is no promise; and half of the grid, since a closet is no task.
        reached = sorted(set(distances(walls, start)) - {start})
        if len(reached) >= side * side // 2:
            return Grid(walls, start, rng.randrange(len(STEPS)), tuple(rng.sample(reached, subgoals)), seed)


def distances(walls: Walls, start: Cell) -> Mapping[Cell, int]:
    """Return the cells that can be reached from `start`, and in how many steps forward."""
    found = {start: 0}
    edge = deque([start])
    while edge:
        cell = edge.popleft()
        for following in neighbours(walls, cell):
            if following not in found:
                found[following] = found[cell] + 1
                edge.append(following)
    return found


def neighbours(walls: Walls, cell: Cell) -> Iterator[Cell]:
    """Yield the free cells beside one, in the order of `STEPS`."""
    for row, column in STEPS:
        beside = (cell[0] + row, cell[1] + column)
        if not walls[beside]:
            yield beside


def _draw_walls(side: int, share: float, rng: random.Random) -> Walls:
    walls = np.ones((side, side), dtype=np.bool_)
    for row in range(1, side - 1):
        for column in range(1, side - 1):
            walls[row, column] = rng.random() < share
    walls.setflags(write=False)
    return walls


def _free_cells(walls: Walls) -> list[Cell]:
    return [(int(row), int(column)) for row, column in np.argwhere(~walls)]


def _seed(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=4).digest(), "big")
