"""Baseline policies for the grid simulator. They say that they are baselines: none of them has learned anything."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy.protocol import Action, Policy
from headgate.jobqueue.policy.simulator import FORWARD, LEFT, NAME, RIGHT, STEPS, WALL, Cell, distances, neighbours


class RandomPolicy:
    """Any action, whatever it sees; the same ones in every episode of one seed."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._rng = random.Random(seed)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That it is a baseline."""
        return _metadata("baseline-random", "draws its actions; a baseline, not a trained policy")

    def reset(self) -> None:
        """Begin the sequence anew."""
        self._rng = random.Random(self._seed)

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return any action."""
        del observation
        return np.array([self._rng.choice((LEFT, RIGHT, FORWARD))], dtype=np.int64)


class ScriptedPolicy:
    """Walks the shortest way to the next subgoal, which it finds by search in the image."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That it is a baseline."""
        return _metadata("baseline-scripted", "searches the shortest way; a baseline, not a trained policy")

    def reset(self) -> None:
        """Forget nothing: it has no memory."""

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the next action on the way."""
        walls = observation["image"][..., 0] == WALL
        here, goal = _cell(observation["position"]), _cell(observation["goal"])
        to_goal = distances(walls, goal)
        following = min(neighbours(walls, here), key=lambda cell: to_goal.get(cell, walls.size), default=here)
        wanted = STEPS.index((following[0] - here[0], following[1] - here[1])) if following != here else None
        return np.array([_turn_or_go(int(observation["direction"]), wanted)], dtype=np.int64)


class SlowPolicy:
    """Another policy that takes its time, as one does that computes."""

    def __init__(self, policy: Policy, delay_s: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._policy = policy
        self._delay_s = delay_s
        self._sleep = sleep

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The other's, with the delay."""
        return {**self._policy.metadata, "delay_s": self._delay_s}

    def reset(self) -> None:
        """Reset the other."""
        self._policy.reset()

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the other's action, later."""
        self._sleep(self._delay_s)
        return self._policy.act(observation)


BASELINES: Final[Mapping[str, Callable[[], Policy]]] = {"random": RandomPolicy, "scripted": ScriptedPolicy}
"""Name -> how to make it."""


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


def _metadata(name: str, what: str) -> dict[str, Any]:
    return {"policy": name, "about": what, "simulator": NAME, "action_shape": [1]}


def _turn_or_go(direction: int, wanted: int | None) -> int:
    if wanted is None or wanted == direction:
        return FORWARD
    return LEFT if (direction - wanted) % len(STEPS) == 1 else RIGHT


def _cell(pair: Any) -> Cell:
    row, column = pair.tolist()
    return row, column
