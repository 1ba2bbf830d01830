"""The worlds of BabyAI: minigrid's own levels, loaded when first needed and kept quiet."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from dataclasses import dataclass
from typing import Any, Final

from headgate.core import errors
from headgate_environments.babyai.view import View

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
    """One level under one seed, in play. Owned by one episode.

    Attributes:
        simulation: minigrid's environment.
        view: what the agent sees now.
        steps: single steps taken.
        reward: of the last step, in [0, 1].
        is_over: whether the mission was accomplished, failed, or ran out of the level's own steps.
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
        """Take one single step; `view` stays as it was until `look`."""
        _, reward, terminated, truncated, _ = self.simulation.step(action)
        self.steps += 1
        self.reward = float(reward)
        self.is_over = bool(terminated or truncated)

    def look(self) -> None:
        """Bring `view` up to date."""
        self.view = _view_of(self.simulation, self.simulation.gen_obs())


def new_world(index: int) -> World:
    """Return the world of task `index` by AgentGym's rule: the level by `index % 40`, its seed `index // 40`.

    Takes up to 20 ms, and 2 s more the first time (the import of minigrid).
    """
    simulation = _minigrid().make(f"BabyAI-{LEVELS[index % len(LEVELS)]}", disable_env_checker=True).unwrapped
    observation, _ = simulation.reset(seed=index // len(LEVELS))
    return World(simulation, _view_of(simulation, observation))


def require_minigrid() -> None:
    """Raise unless minigrid is installed; does not load it.

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
    # Its generators print each rejected draw. A silent `print` in that one module, rather than a redirected stdout,
    # which would swallow what other threads print.
    levels: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    levels.print = _say_nothing
    return gymnasium


def _say_nothing(*_: object, **__: object) -> None:
    return None


def _view_of(simulation: Any, observation: Any) -> View:
    load = simulation.carrying
    return View(observation["image"], None if load is None else (load.color, load.type))
