"""The solver of BabyAI: what minigrid's own bot does, said in the actions that a model can take."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.environments.babyai_view import DONE, FORWARD, LEFT, RIGHT, Pose, moved
from headgate.environments.babyai_world import World, new_world

MAX_SEARCHES: Final = 600
"""The bot can plan for ever within one step (UnlockToUnlock, seed 4); 200 steps of an ordinary run search 360 times."""

_MOVES: Final = (LEFT, RIGHT, FORWARD)


class _StuckError(Exception):
    """The bot searches without end."""


@functools.lru_cache(maxsize=4096)
def planned_actions(index: int, max_steps: int) -> tuple[str, ...]:
    """Return the actions, by name, with which the bot plays task `index`; as far as it gets within `max_steps`.

    Up to half a second of work the first time; the same at every call.
    """
    trace = bot_steps(new_world(index), max_steps)
    world = new_world(index)
    plan: list[str] = []
    position = 0
    while position < len(trace) and not world.is_over:
        action, used = _widest(world.view.actions, trace[position:])
        if action is None:
            break
        for step in world.view.actions[action]:
            if not world.is_over:
                world.step(step)
        world.look()
        plan.append(action)
        position += used
    return tuple(plan)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Single steps as they matter to the world: where the moves end, and what is done there and after."""

    pose: Pose
    deeds: tuple[int, ...]


def bot_steps(world: World, max_steps: int) -> list[int]:
    """Play `world` as the bot does, until it is over; return the single steps, `max_steps` at most."""
    bot = _bot_class()(world.simulation)
    steps: list[int] = []
    try:
        while not world.is_over and len(steps) < max_steps:
            step = int(bot.replan(steps[-1] if steps else None))
            steps.append(step)
            world.step(step)
    except (_StuckError, AssertionError):
        return steps  # it has bugs in a few levels; what it has done so far is its plan
    return steps


def _widest(available: dict[str, tuple[int, ...]], trace: Sequence[int]) -> tuple[str | None, int]:
    """Return the action that covers most of the steps ahead in `trace`, with how many it covers."""
    best: tuple[str | None, int] = (None, 0)
    for action, steps in available.items():
        covered = _covered(_stretch(steps), trace)
        if covered > best[1]:
            best = (action, covered)
    return best


def _covered(wanted: _Stretch, trace: Sequence[int]) -> int:
    """Return how many steps of `trace` lead to the same pose and deeds as `wanted`, 0 if none do."""
    moves = _leading_moves(trace)
    pose: Pose = (0, 0, 0)
    covered = 0
    for count in range(moves + 1):
        if count:
            pose = moved(pose, trace[count - 1])
        if pose == wanted.pose and tuple(trace[count : count + len(wanted.deeds)]) == wanted.deeds:
            covered = count + len(wanted.deeds)
    return covered


def _stretch(steps: Sequence[int]) -> _Stretch:
    moves = _leading_moves(steps)
    pose: Pose = (0, 0, 0)
    for step in steps[:moves]:
        pose = moved(pose, step)
    return _Stretch(pose, tuple(step for step in steps[moves:] if step != DONE))


def _leading_moves(steps: Sequence[int]) -> int:
    return next((number for number, step in enumerate(steps) if step not in _MOVES), len(steps))


@functools.cache
def _bot_class() -> Any:
    bot: Any = importlib.import_module("minigrid.utils.baby_ai_bot").BabyAIBot

    class BoundedBot(bot):  # type: ignore[misc]
        """The bot, made to give up when it searches without end."""

        def _shortest_path(self, *arguments: Any, **options: Any) -> Any:
            if self.bfs_counter > MAX_SEARCHES:
                raise _StuckError
            return super()._shortest_path(*arguments, **options)

    return BoundedBot
