"""The greedy baseline: search one place after the other and take the obvious next step, from the text alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TASK: Final = re.compile(
    r"(?:put|look at) an? (?:(?P<state>clean|hot|cool) )?(?P<thing>\w+)"
    r"(?P<two> and another \w+)? (?:in|on|by the light of) (?:an?|one) (?P<place>\w+)\."
)
_VERBS: Final = {"clean": "clean", "hot": "heat", "cool": "cool"}
_TOOLS: Final = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}


@dataclass(frozen=True, slots=True)
class Search:
    """What a player without a map knows. Made anew for every reply.

    Attributes:
        task: what is to be done, as the opening says it.
        available: the actions that the last message lists.
        done: the actions taken so far.
    """

    task: str
    available: Sequence[str]
    done: Sequence[str]

    def next_action(self) -> str:
        """Return what to do next."""
        found = _TASK.fullmatch(self.task)
        if found is None:
            return "look"
        held = self._held()
        if held is None:
            return self._towards(rf"take {found['thing']} \d+ from (?!{found['place']} ).+") or self._onward()
        if found["state"] and not self._is_treated(held, _VERBS[found["state"]]):
            verb = _VERBS[found["state"]]
            return self._towards(f"{verb} {held} with .+", _TOOLS[verb]) or "look"
        return self._towards(rf"(use|move {held} to) {found['place']} \d+", found["place"]) or self._onward()

    def _held(self) -> str | None:
        moves = [action for action in self.done if action.startswith(("take ", "move "))]
        return " ".join(moves[-1].split()[1:3]) if moves and moves[-1].startswith("take ") else None

    def _is_treated(self, thing: str, verb: str) -> bool:
        return any(action.startswith(f"{verb} {thing} ") for action in self.done)

    def _towards(self, wanted: str, place: str = "") -> str | None:
        """Return the available action that matches `wanted`, or one that leads to it at a kind of place."""
        ways = [wanted, *([rf"open {place} \d+", rf"go to {place} 1"] if place else [])]
        return next((action for way in ways for action in self.available if re.fullmatch(way, action)), None)

    def _onward(self) -> str:
        """Return an action that shows more: opening what is closed here, or going where nobody has been."""
        opening = (action for action in self.available if action.startswith("open ") and action not in self.done)
        going = (action for action in self.available if action.startswith("go to ") and action not in self.done)
        return next(itertools.chain(opening, going), "look")
