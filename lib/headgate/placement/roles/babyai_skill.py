"""Reading `agentgym:babyai`: one decision per round, an alternative for each available action."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from headgate.core import Message
from headgate.placement.roles.skill import Features

_AVAILABLE: Final = "Available actions: "
_VERBS: Final = (
    "toggle and go through",
    "go through",
    "go to",
    "pick up",
    "move forward",
    "turn left",
    "turn right",
    "toggle",
    "drop",
)
_ON_THINGS: Final = frozenset({"toggle and go through", "go through", "go to", "pick up"})
_UNDONE_BY: Final = {"turn left": "turn right", "turn right": "turn left"}
_STATES: Final = frozenset({"open", "closed", "locked"})
_WORD: Final = re.compile(r"[a-z]+")


class BabyAISkill:
    """Scores each available action by its verb, and by what it shares with the goal and the actions before."""

    @property
    def features(self) -> int:
        """Columns of every decision."""
        return len(_VERBS) + 16

    def decisions(self, conversation: Sequence[Message]) -> list[Features]:
        """Return the one decision of this round."""
        goal = conversation[0].content.rpartition("\nGoal: ")[2].partition("\n")[0]
        done = [m.content.removeprefix("Action: ") for m in conversation if m.role == "assistant"]
        is_loaded = "You are carrying" in conversation[-1].content
        rows = [_row(action, goal, done, is_loaded=is_loaded) for action in _available(conversation)]
        return [np.array(rows, dtype=np.float64)]

    def reply(self, conversation: Sequence[Message], chosen: Sequence[int]) -> str:
        """Return the chosen action in the environment's form."""
        return f"Action: {_available(conversation)[chosen[0]]}"


def _available(conversation: Sequence[Message]) -> list[str]:
    listed: list[str] = json.loads(conversation[-1].content.rpartition(_AVAILABLE)[2])
    return listed


def _row(action: str, goal: str, done: Sequence[str], *, is_loaded: bool) -> list[float]:
    verb = next(verb for verb in _VERBS if action.startswith(verb))
    wanted = set(_WORD.findall(goal))
    thing = set(_WORD.findall(action[len(verb) :])) - _STATES
    is_wanted = bool(thing) and thing <= wanted
    is_putting, is_opening = "put" in wanted, "open" in wanted
    facts = [
        len(thing & wanted) / 2,
        is_wanted,
        *(is_wanted and verb == on_things for on_things in sorted(_ON_THINGS)),
        verb in goal,
        verb in goal and is_wanted,
        is_opening and is_wanted and ("through" in verb or verb == "toggle"),
        is_putting and verb == "drop",
        is_putting and is_wanted and verb == "pick up",
        is_putting and is_wanted and verb == "go to" and is_loaded,
        action in done,
        action in done and is_wanted,
        bool(done) and done[-1] == _UNDONE_BY.get(action),
        is_loaded and "through" in verb,
    ]
    return [float(fact) for fact in (*(verb == known for known in _VERBS), *facts)]
