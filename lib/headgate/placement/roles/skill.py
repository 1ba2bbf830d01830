"""How a policy plays an environment: which decisions a text asks for, and how to reply with the choices."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.core import Message
from headgate.placement.errors import InvalidPlacementError

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

_LITERAL: Final = re.compile(r"(¬?)x(\d{1,9})\b")

Features = NDArray[np.float64]
"""One decision: a row of features for each alternative."""


class Skill(Protocol):
    """The decisions of one environment. Stateless: everything is in the conversation."""

    features: int
    """Columns of every decision."""

    def decisions(self, conversation: Sequence[Message]) -> list[Features]:
        """Return the decisions of the next reply, read from a conversation that ends with the environment's message."""

    def reply(self, conversation: Sequence[Message], chosen: Sequence[int]) -> str:
        """Return the reply that states the chosen alternative of each decision."""


class SatisfiabilitySkill:
    """Decides each variable by how often it occurs in the formula with and without "not"."""

    features = 3

    def decisions(self, conversation: Sequence[Message]) -> list[Features]:
        """Return a decision for each variable: its first alternative is True, the second False."""
        return [_both(count) for _, count in sorted(_occurrences(conversation).items())]

    def reply(self, conversation: Sequence[Message], chosen: Sequence[int]) -> str:
        """Return the assignment."""
        names = sorted(_occurrences(conversation))
        return ", ".join(f"x{name}={alternative == 0}" for name, alternative in zip(names, chosen, strict=True))


def _occurrences(conversation: Sequence[Message]) -> dict[int, Counter[bool]]:
    """Return for each variable how often it occurs plain (True) and negated (False)."""
    formula = conversation[0].content.partition("\n")[2].partition("\n")[0]
    counts: dict[int, Counter[bool]] = {}
    for negated, name in _LITERAL.findall(formula):
        counts.setdefault(int(name), Counter())[not negated] += 1
    return counts


def _both(count: Counter[bool]) -> Features:
    lean = (count[True] - count[False]) / (count[True] + count[False])
    return np.array([[lean, abs(lean), 1.0], [-lean, abs(lean), 0.0]])


class BabyAISkill:
    """Scores each available action by its verb, and by what it shares with the goal and with earlier actions."""

    features = len(_VERBS) + 16

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


SKILLS: Final[Mapping[str, Callable[[], Skill]]] = {
    "agentgym:babyai": BabyAISkill,
    "affine:sat": SatisfiabilitySkill,
    "affine:sat-hard": SatisfiabilitySkill,
}
"""Environment -> how a policy plays it."""


def skill_of(environment: str) -> Skill:
    """Return how a policy plays an environment.

    Raises:
        InvalidPlacementError: there is no skill for this environment.
    """
    if environment not in SKILLS:
        raise InvalidPlacementError(
            f"No policy can play {environment!r} yet",
            next_step=f"Take one of {', '.join(SKILLS)}.",
        )
    return SKILLS[environment]()
