"""A small real simulator, an agent that walks through a grid from subgoal to subgoal, and baseline policies for it.

Walls, start and subgoals depend only on the names of task and instance.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
import orjson

from headgate.core.errors import InvalidInputError
from headgate.durable.files import write_whole
from headgate.jobqueue.policy.protocol import Action, Policy, PolicyFailedError

NAME: Final = "headgate-grid-1"
"""This simulator's name in results; the number changes when the same task would give a different world."""

LEFT, RIGHT, FORWARD = range(3)
"""The actions."""

FREE, WALL, SUBGOAL, AGENT = range(4)
"""Values of the first channel of the image: what is in a cell."""


Cell = tuple[int, int]
"""Row and column."""

Walls = np.ndarray[Any, np.dtype[np.bool_]]

STEPS: Final[tuple[Cell, ...]] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""What one step forward changes, by direction: 0 east, 1 south, 2 west, 3 north. A right turn adds one."""

_SIDES: Final = (11, 13, 15, 17)
_SUBGOALS: Final = (3, 4, 5, 6)
_WALL_SHARES: Final = (0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, slots=True)
class Grid:
    """The world of an episode.

    Invariant: every subgoal can be reached from the start, and start and subgoals are different cells.

    Attributes:
        walls: true where the agent cannot be, including the border; never written to.
        direction: where the agent faces at the start, as in `STEPS`.
        subgoals: to be reached in this order.
        seed: random seed of the parts that depend on the instance.
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
        # Sorted, since the search's order is not guaranteed; at least half of the grid, since a tiny room is trivial.
        reached = sorted(set(distances(walls, start)) - {start})
        if len(reached) >= side * side // 2:
            return Grid(walls, start, rng.randrange(len(STEPS)), tuple(rng.sample(reached, subgoals)), seed)


def distances(walls: Walls, start: Cell) -> Mapping[Cell, int]:
    """Return the cells reachable from `start`, each with the number of steps forward to it."""
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
    """Yield the free cells adjacent to one, in the order of `STEPS`."""
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

    Invariant: `reached` only grows, and the episode is over when it equals the number of subgoals.

    An observation has
    - `image`: uint8 (side, side, 3): what is in a cell; the number of a subgoal from 1, else 0; 1 where a subgoal has
      been reached, else 0;
    - `position`: int64 (2,), row and column of the agent;
    - `direction`: int64, where it faces: 0 east, 1 south, 2 west, 3 north;
    - `goal`: int64 (2,), row and column of the next subgoal (of the last one when all are reached);
    - `step`: number of steps taken.
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
        """The share of the subgoals that were reached, in their order; speed does not matter."""
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
        """Execute an action: 0 turns left, 1 turns right, 2 goes forward unless a wall is there.

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
            next_step="Serve a policy made for this simulator.",
        )
    return int(action.item())


def _metadata(name: str, what: str) -> Mapping[str, Any]:
    return {"policy": name, "about": what, "simulator": NAME, "action_shape": [1]}


class RandomPolicy:
    """Random actions, whatever it sees; the same ones in every episode with the same seed."""

    metadata = _metadata("baseline-random", "draws its actions; a baseline, not a trained policy")

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._rng = random.Random(seed)

    def reset(self) -> None:
        """Restart the sequence."""
        self._rng = random.Random(self._seed)

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return a random action."""
        del observation
        return np.array([self._rng.choice((LEFT, RIGHT, FORWARD))], dtype=np.int64)


class ScriptedPolicy:
    """Takes the shortest path to the next subgoal, found by a search in the image."""

    metadata = _metadata("baseline-scripted", "searches the shortest way; a baseline, not a trained policy")

    def reset(self) -> None:
        """Do nothing: it has no memory."""

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the next action on the path."""
        walls = observation["image"][..., 0] == WALL
        here, goal = _cell(observation["position"]), _cell(observation["goal"])
        to_goal = distances(walls, goal)
        following = min(neighbours(walls, here), key=lambda cell: to_goal.get(cell, walls.size), default=here)
        wanted = STEPS.index((following[0] - here[0], following[1] - here[1])) if following != here else None
        return np.array([_turn_or_go(int(observation["direction"]), wanted)], dtype=np.int64)


class SlowPolicy:
    """Another policy with a delay, like one that computes."""

    def __init__(self, policy: Policy, delay_s: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._policy = policy
        self._delay_s = delay_s
        self._sleep = sleep

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The other policy's metadata, with the delay."""
        return {**self._policy.metadata, "delay_s": self._delay_s}

    def reset(self) -> None:
        """Reset the other policy."""
        self._policy.reset()

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the other policy's action after the delay."""
        self._sleep(self._delay_s)
        return self._policy.act(observation)


BASELINES: Final[Mapping[str, Callable[[], Policy]]] = {"random": RandomPolicy, "scripted": ScriptedPolicy}
"""Name -> its constructor."""


def baseline_policy(name: str, *, delay_s: float = 0.0) -> Policy:
    """Return a baseline policy by name.

    Raises:
        InvalidInputError: if there is none of this name, or the delay is negative.
    """
    if name not in BASELINES:
        raise InvalidInputError(f"there is no baseline policy {name!r:.80}; there are {', '.join(sorted(BASELINES))}")
    if not 0 <= delay_s < float("inf"):
        raise InvalidInputError(f"the delay of a policy must be >= 0 (got {delay_s})")
    policy = BASELINES[name]()
    return SlowPolicy(policy, delay_s) if delay_s else policy


def _turn_or_go(direction: int, wanted: int | None) -> int:
    if wanted is None or wanted == direction:
        return FORWARD
    return LEFT if (direction - wanted) % len(STEPS) == 1 else RIGHT


def _cell(pair: Any) -> Cell:
    row, column = pair.tolist()
    return row, column


MAX_STEPS: Final = 300
"""Per episode: the shortest path through the largest grid takes a third of it."""


def read_evaluation_task(task: str | None, instance: str | None, job_file: Path | None) -> tuple[str, str]:
    """Return the task and the instance to evaluate, which may be empty; arguments that are None come from the job.

    A job has `task` and `instance`, or a `payload` that has `task` and `instance_basename`; it may be under the key
    `job`, beside its lease.

    Raises:
        InvalidInputError: if the file cannot be read or no task is named anywhere.
    """
    job = _job_in(job_file) if job_file is not None and (task is None or instance is None) else {}
    payload = job.get("payload")
    fields = {**(payload if isinstance(payload, dict) else {}), **{key: value for key, value in job.items() if value}}
    task = task if task is not None else _text(fields.get("task"))
    if instance is None:
        instance = _text(fields.get("instance")) or _text(fields.get("instance_basename"))
    if not task:
        where = f"the job in {job_file} has none" if job_file is not None else "there is no job file either"
        raise InvalidInputError(f"no task is named, and {where}", next_step="Give --task and --instance.")
    return task, instance


def _job_in(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the job file {path} cannot be read: {error}") from error
    job = document.get("job", document) if isinstance(document, dict) else document
    if not isinstance(job, dict):
        raise InvalidInputError(f"the job file {path} must hold a JSON object (got {type(job).__name__})")
    return job


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


class EpisodeResult(TypedDict):
    """The outcome of an episode.

    Attributes:
        q_score: share of the subgoals that were reached, in [0, 1].
        simulator: the simulator's name and version.
        policy: the policy's name, from its metadata.
    """

    q_score: float
    success: bool
    steps: int
    seed: int
    simulator: str
    policy: str


def run_episode(policy: Policy, simulation: GridSimulation, max_steps: int = MAX_STEPS) -> EpisodeResult:
    """Run one episode of an instance that has been loaded.

    Args:
        policy: chooses the actions; it is reset first.
        simulation: fresh from `load_simulation`.
        max_steps: most steps before the episode ends.

    Raises:
        PolicyError: when the policy or the connection to it fails.
        InvalidInputError: if `max_steps` is not positive.
    """
    if max_steps < 1:
        raise InvalidInputError(f"max_steps must be >= 1 (got {max_steps})")
    policy.reset()
    while not simulation.is_over and simulation.steps < max_steps:
        simulation.step(policy.act(simulation.observation()))
    return EpisodeResult(
        q_score=simulation.q_score,
        success=simulation.is_over,
        steps=simulation.steps,
        seed=simulation.grid.seed,
        simulator=NAME,
        policy=str(policy.metadata.get("policy", "unnamed"))[:200],
    )


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, durably, and only then give it its name; creates a missing folder.

    Raises:
        InvalidInputError: if it cannot be written there; an earlier file stays.
    """
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        write_whole({path: text})
    except OSError as error:
        raise InvalidInputError(
            f"the result cannot be written to {path}: {error.strerror or error}", next_step="Name another file."
        ) from error
