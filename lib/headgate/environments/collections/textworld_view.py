"""What a game of TextWorldExpress tells a model, and which action a reply names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.environments.answers import named_actions

AVAILABLE: Final = "Available actions: "

_ACTION_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class View:
    """What the game says after a step."""

    said: str
    available: tuple[str, ...]
    score: float
    is_over: bool

    def text(self) -> str:
        """Return it as the model is told."""
        return f"{self.said}\n{AVAILABLE}{json.dumps(self.available)}"


def told_actions(text: str) -> list[str]:
    """Return the actions that a text of a view, or one that ends with it, lists as available."""
    actions: list[str] = json.loads(text.rpartition(AVAILABLE)[2])
    return actions


def chosen_action(reply: str, available: Sequence[str]) -> tuple[str | None, str]:
    """Return the available action that `reply` names, or None with what to tell the model.

    It stands after the one `Action:`; a reply that is nothing but an action will do. Case and markup do not matter.
    """
    named = list(named_actions(reply))
    if len(named) > 1:
        return None, "Only one action is allowed per reply; nothing was done.\n"
    wanted = " ".join((named[0] if named else reply)[:_ACTION_CHARS].lower().split()).strip(" .!`*'\"")
    for action in available:
        if action.lower() == wanted:
            return action, ""
    return None, f"That is not an action that you can take now: {wanted!r:.80}. Nothing was done.\n"
