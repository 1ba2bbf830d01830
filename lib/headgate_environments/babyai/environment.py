"""`agentgym:babyai`: carry out a mission in a grid world described in text, in up to ten rounds."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.core import Message, errors
from headgate.environments import BaselineKind, EnvironmentSpec, Score, failed
from headgate.environments.answers import ONE_ACTION, only_action
from headgate_environments.babyai.view import DONE, FORWARD, LEFT, RIGHT, Pose, View, moved
from headgate_environments.text_game import GameEpisode, TextGame, next_action

LEVELS: Final = (
    "GoToRedBallGrey-v0",
    "GoToRedBall-v0",
    "GoToRedBallNoDists-v0",
    "GoToObjS6-v1",  # AgentGym names -v0, which minigrid 3 no longer has
    "GoToLocalS8N7-v0",
    "GoToObjMazeS7-v0",
    "GoToImpUnlock-v0",
    "GoToSeqS5R2-v0",
    "GoToRedBlueBall-v0",
    "GoToDoor-v0",
    "GoToObjDoor-v0",
    "Open-v0",
    "OpenRedDoor-v0",
    "OpenDoorLoc-v0",
    "OpenRedBlueDoorsDebug-v0",
    "OpenDoorsOrderN4Debug-v0",
    "Pickup-v0",
    "UnblockPickup-v0",
    "PickupLoc-v0",
    "PickupDistDebug-v0",
    "PickupAbove-v0",
    "PutNextLocalS6N4-v0",
    "PutNextS7N4Carrying-v0",
    "Unlock-v0",
    "UnlockLocalDist-v0",
    "KeyInBox-v0",
    "UnlockPickupDist-v0",
    "BlockedUnlockPickup-v0",
    "UnlockToUnlock-v0",
    "ActionObjDoor-v0",
    "FindObjS7-v0",
    "KeyCorridorS6R3-v0",
    "OneRoomS20-v0",
    "MoveTwoAcrossS8N9-v0",
    "SynthS5R2-v0",
    "SynthLoc-v0",
    "SynthSeq-v0",
    "MiniBossLevel-v0",
    "BossLevel-v0",
    "BossLevelNoUnlock-v0",
)
"""The 40 levels of AgentGym's babyai in its order."""

SEEDS_PER_LEVEL: Final = 100
DATA_LENGTH: Final = len(LEVELS) * SEEDS_PER_LEVEL


@dataclass(slots=True)
class World:
    """A level with one seed, in play. Owned by one episode.

    Attributes:
        simulation: minigrid's environment.
        view: what the agent sees now.
        steps: number of single steps taken.
        reward: reward of the last step, in [0, 1].
        is_over: whether the mission was accomplished, failed, or exceeded the level's own limit of steps.
    """

    simulation: Any
    view: View
    steps: int = 0
    reward: float = 0.0
    is_over: bool = False

    @property
    def mission(self) -> str:
        """The goal in minigrid's words."""
        return str(self.simulation.mission)

    def step(self, action: int) -> None:
        """Take a single step; `view` is not updated until `look`."""
        _, reward, terminated, truncated, _ = self.simulation.step(action)
        self.steps += 1
        self.reward = float(reward)
        self.is_over = bool(terminated or truncated)

    def look(self) -> None:
        """Update `view`."""
        self.view = _view_of(self.simulation, self.simulation.gen_obs())


def new_world(index: int) -> World:
    """Return the world of task `index` by AgentGym's rule: the level by `index % 40`, its seed `index // 40`.

    Takes up to 20 ms, and 2 s more the first time (the import of minigrid).
    """
    simulation = _minigrid().make(f"BabyAI-{LEVELS[index % len(LEVELS)]}", disable_env_checker=True).unwrapped
    observation, _ = simulation.reset(seed=index // len(LEVELS))
    return World(simulation, _view_of(simulation, observation))


def require_minigrid() -> None:
    """Raise unless minigrid is installed, without loading it.

    Raises:
        MissingExtraError: if it is not.
    """
    if importlib.util.find_spec("minigrid") is None:
        raise errors.MissingExtraError("environment 'agentgym:babyai'", "environments")


@functools.cache
def _minigrid() -> Any:
    """Return gymnasium with minigrid's levels registered."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    gymnasium = importlib.import_module("gymnasium")
    importlib.import_module("minigrid")
    # Its generators print each rejected draw. Silence `print` in that module only: a redirected stdout would swallow
    # the output of other threads.
    levels: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    levels.print = _say_nothing
    return gymnasium


def _say_nothing(*_: object, **__: object) -> None:
    return None


def _view_of(simulation: Any, observation: Any) -> View:
    load = simulation.carrying
    return View(observation["image"], None if load is None else (load.color, load.type))


MAX_SEARCHES: Final = 600
"""The bot can plan forever within one step (UnlockToUnlock, seed 4); 200 steps of an ordinary run search 360 times."""

_MOVES: Final = (LEFT, RIGHT, FORWARD)

MAX_ROUNDS: Final = 10
"""Replies per episode (Affine's default)."""

MAX_STEPS: Final = 50
"""Single steps per episode (AgentGym's bound); one action, such as going to a ball, takes several."""

_INSTRUCTIONS: Final = """\
You are an agent in a grid world of rooms, doors, keys, balls and boxes, and have a goal to reach. Each round you are \
told what you see, and you reply with a thought and one action.

Actions, where <thing> is a name with its number such as "red ball 1":
- turn left, turn right, move forward
- go to <thing>: walk up to it and face it
- pick up <thing>: go to it and take it; you can carry one thing
- drop: put down what you carry on the free cell in front of you
- go through <open door>
- toggle and go through <closed or locked door>: a locked door needs the key of its colour in your hand
- toggle: open or close the door, or open the box, in front of you

Take one of the actions that are listed as available. You have {rounds} rounds and {steps} single steps in all. Reply \
in this form:
Thought: <why>
Action: <action>

Goal: {mission}
{view}"""

_AVAILABLE: Final = "Available actions: "


class BabyAIEpisode(GameEpisode):
    """One world in play."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(
            _INSTRUCTIONS.format(rounds=MAX_ROUNDS, steps=MAX_STEPS, mission=world.mission, view=world.view.text())
        )

    async def _outcome(self, reply: str) -> str | Score:
        """Take the action in `reply`: a few milliseconds of work on the event loop."""
        action, problem = chosen_action(reply, self._world.view)
        if action is not None:
            self._take(action)
        return self._ended() or f"{problem}{self._world.view.text()}"

    def _take(self, action: str) -> None:
        for step in self._world.view.actions[action][: MAX_STEPS - self._world.steps]:
            self._world.step(step)
            if self._world.is_over:
                break
        self._world.look()

    def _ended(self) -> Score | None:
        world = self._world
        spent = f"steps={world.steps} rounds={self.rounds}"
        if world.is_over and world.reward > 0:
            return Score(world.reward, success=True, why=f"mission accomplished: {spent}")
        if world.is_over:
            return failed(f"mission failed: {spent}")
        if world.steps >= MAX_STEPS or self.rounds >= MAX_ROUNDS:
            return failed(f"mission not accomplished: {spent}")
        return None


class BabyAIEnvironment(TextGame):
    """AgentGym's babyai on minigrid. Stateless; tasks depend on the index alone."""

    spec = EnvironmentSpec(
        name="agentgym:babyai",
        summary="Carry out a mission in a grid world described in text, in up to 10 rounds",
        daily_rate=120.0,
        data_length=DATA_LENGTH,
        max_rounds=MAX_ROUNDS,
        licence="Apache-2.0",
        source="levels of minigrid; task rule published by WooooDyy/AgentGym",
        chance_score=0.23,
        # minigrid's bot solves the tasks, but only six out of ten within ten replies.
        solver_rate=0.5,
    )

    async def _begun(self, index: int) -> BabyAIEpisode:
        """Begin task `index` in a thread: building a world takes up to 20 ms, and the first one loads minigrid."""
        return BabyAIEpisode(await asyncio.to_thread(new_world, index))

    async def _action(self, kind: BaselineKind, index: int, conversation: Sequence[Message], rng: random.Random) -> str:
        available = _available_in(conversation[-1].content)
        if kind == "greedy":
            return _likeliest(available, _goal_in(conversation[0].content), rng)
        plan = await asyncio.to_thread(planned_actions, index, MAX_STEPS) if kind == "solver" else ()
        return next_action(plan, conversation, "") or rng.choice(available)


def babyai() -> BabyAIEnvironment:
    """Return `agentgym:babyai`.

    Raises:
        MissingExtraError: if minigrid is not installed.
    """
    require_minigrid()
    return BabyAIEnvironment()


def chosen_action(reply: str, view: View) -> tuple[str | None, str]:
    """Return the available action that `reply` names and "", or None and a message to the model.

    The action follows `Action:`, on that line or the next; a reply that is just an action is accepted, too. Case,
    punctuation and articles do not matter, and a missing number means 1. More than one `Action:` is refused, as in
    AgentGym, since the later ones respond to views that the model made up.
    """
    named = only_action(reply)
    if named is None:
        return None, f"{ONE_ACTION} "
    wanted = _plain(named)
    for candidate in (wanted, f"{wanted} 1"):
        if candidate in view.actions:
            return candidate, ""
    return None, f"That is not an action that you can take now: {wanted!r:.80}. Nothing was done. "


def _plain(action: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", action[:200].lower()).replace("pickup", "pick up").split()
    return " ".join(word for word in words if word not in ("the", "a", "an"))


def _available_in(text: str) -> list[str]:
    listed: list[str] = json.loads(text.rpartition(_AVAILABLE)[2])
    return listed


def _goal_in(text: str) -> str:
    return text.rpartition("\nGoal: ")[2].partition("\n")[0]


def _likeliest(available: Sequence[str], goal: str, rng: random.Random) -> str:
    """Return the action with the most words in common with the goal; if none has two, move on through the rooms."""
    wanted = set(goal.replace("open", "toggle and go through").replace(",", "").split()) - {
        "the",
        "a",
        "and",
        "to",
        "you",
    }
    ranked = {action: len(wanted & set(action.split())) for action in available if action[-1].isdigit()}
    best = max(ranked.values(), default=0)
    if best > 1:
        return next(action for action, common in ranked.items() if common == best)
    doors = [action for action in available if "through" in action]
    onward = [action for action in available if action == "move forward"]
    return rng.choice(doors or [*onward, *onward, "turn left", "turn right"])


class _StuckError(Exception):
    """The bot searches endlessly."""


@functools.lru_cache(maxsize=4096)
def planned_actions(index: int, max_steps: int) -> tuple[str, ...]:
    """Return the names of the actions with which the bot plays task `index`, as far as it gets within `max_steps`.

    The first call takes up to half a second; every call returns the same.
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
    """The effect of a series of single steps: the pose after the leading moves, and the steps from there on."""

    pose: Pose
    deeds: tuple[int, ...]


def bot_steps(world: World, max_steps: int) -> list[int]:
    """Let the bot play `world` until it is over; return its single steps, at most `max_steps`."""
    bot = _bot_class()(world.simulation)
    steps: list[int] = []
    try:
        while not world.is_over and len(steps) < max_steps:
            step = int(bot.replan(steps[-1] if steps else None))
            steps.append(step)
            world.step(step)
    except (_StuckError, AssertionError):
        return steps  # the bot has bugs in a few levels; its steps so far are its plan
    return steps


def _widest(available: dict[str, tuple[int, ...]], trace: Sequence[int]) -> tuple[str | None, int]:
    """Return the action that covers the most of the next steps in `trace`, and the number of steps that it covers."""
    best: tuple[str | None, int] = (None, 0)
    for action, steps in available.items():
        covered = _covered(_stretch(steps), trace)
        if covered > best[1]:
            best = (action, covered)
    return best


def _covered(wanted: _Stretch, trace: Sequence[int]) -> int:
    """Return how many steps of `trace` have the same effect as `wanted`; 0 if none do."""
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
        """The bot, but it gives up when it searches endlessly."""

        def _shortest_path(self, *arguments: Any, **options: Any) -> Any:
            if self.bfs_counter > MAX_SEARCHES:
                raise _StuckError
            return super()._shortest_path(*arguments, **options)

    return BoundedBot
