"""A small real simulator: an agent walks through a grid from subgoal to subgoal.

Walls, start and subgoals come from the names of task and instance alone.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.jobqueue.policy.protocol import Action, PolicyFailedError

NAME: Final = "headgate-grid-1"
"""Of this simulator in results; the number changes when the same task would give another world."""

LEFT, RIGHT, FORWARD = range(3)
"""The actions."""

FREE, WALL, SUBGOAL, AGENT = range(4)
"""What the first channel of the image says is in a cell."""


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


def draw_grid(task: str, instance: str) -> Grid:
    """Return the grid of an instance: the task gives size, walls and number of subgoals, the instance their places."""
    look = random.Random(_seed("task", task))
    side, subgoals, share = look.choice(_SIDES), look.choice(_SUBGOALS), look.choice(_WALL_SHARES)
    seed = _seed("instance", task, instance)
    rng = random.Random(seed)
    while True:
        walls = _draw_walls(side, share, rng)
        start = rng.choice([(int(row), int(column)) for row, column in np.argwhere(~walls)])
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


def _seed(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=4).digest(), "big")


class GridSimulation:
    """One instance, loaded. Owned by one episode.

    Invariant: `reached` only grows, and the episode is over when it is the number of subgoals.

    An observation has
    - `image`: uint8 (side, side, 3): what is in a cell; the number of a subgoal from 1, else 0; 1 where a subgoal has
      been reached, else 0;
    - `position`: int64 (2,), row and column of the agent;
    - `direction`: int64, where it looks: 0 east, 1 south, 2 west, 3 north;
    - `goal`: int64 (2,), row and column of the next subgoal (of the last one when all are reached);
    - `step`: how many steps were taken.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid: Final = grid
        self.steps = 0
        self.reached = 0
        self._position: Cell = grid.start
        self._direction = grid.direction

    @property
    def is_over(self) -> bool:
        """True when every subgoal is reached."""
        return self.reached == len(self.grid.subgoals)

    @property
    def q_score(self) -> float:
        """The share of the subgoals that were reached, in their order; how fast does not matter."""
        return self.reached / len(self.grid.subgoals)

    def observation(self) -> dict[str, Any]:
        """Return what the policy sees now."""
        goal = self.grid.subgoals[min(self.reached, len(self.grid.subgoals) - 1)]
        return {
            "image": self._image(),
            "position": np.array(self._position, dtype=np.int64),
            "direction": np.int64(self._direction),
            "goal": np.array(goal, dtype=np.int64),
            "step": self.steps,
        }

    def step(self, action: Action) -> None:
        """Do what the policy says: 0 turns left, 1 turns right, 2 goes forward unless a wall is there.

        Raises:
            PolicyFailedError: if the action is none of these.
        """
        move = _move(action)
        self.steps += 1
        if move != FORWARD:
            self._direction = (self._direction + (1 if move == RIGHT else -1)) % len(STEPS)
            return
        row, column = STEPS[self._direction]
        ahead = (self._position[0] + row, self._position[1] + column)
        if not self.grid.walls[ahead]:
            self._position = ahead
            if not self.is_over and ahead == self.grid.subgoals[self.reached]:
                self.reached += 1

    def _image(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        image = np.zeros((*self.grid.walls.shape, 3), dtype=np.uint8)
        image[..., 0] = np.where(self.grid.walls, WALL, FREE)
        for number, cell in enumerate(self.grid.subgoals, start=1):
            image[cell] = (SUBGOAL, number, number <= self.reached)
        image[(*self._position, 0)] = AGENT
        return image


def load_simulation(task: str, instance: str) -> GridSimulation:
    """Return an instance ready for its first step: the part of an evaluation that needs no policy server."""
    return GridSimulation(draw_grid(task, instance))


def _move(action: Action) -> int:
    if action.size != 1 or action.item() not in (LEFT, RIGHT, FORWARD):
        raise PolicyFailedError(
            f"an action of {NAME} must be one number: 0, 1 or 2 (got {action.tolist()!r:.80})",
            next_step="Serve a policy that was made for this simulator.",
        )
    return int(action.item())
