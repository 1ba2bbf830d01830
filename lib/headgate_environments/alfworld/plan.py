"""Baselines for a task: the shortest plan with full knowledge of the house, and a search based on the text alone."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate_environments.alfworld.kinds import kind_of
from headgate_environments.alfworld.tasks import Goal, household_task
from headgate_environments.alfworld.world import TREATMENTS, Action, World

_TASK: Final = re.compile(
    r"(?:put|look at) an? (?:(?P<state>clean|hot|cool) )?(?P<thing>\w+)"
    r"(?P<two> and another \w+)? (?:in|on|by the light of) (?:an?|one) (?P<place>\w+)\."
)
_VERBS: Final = {"clean": "clean", "hot": "heat", "cool": "cool"}
_TOOLS: Final = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}


@functools.lru_cache(maxsize=4096)
def planned_actions(index: int) -> tuple[str, ...]:
    """Return the shortest sequence of actions that solves task `index`, over all choices of things and places."""
    task = household_task(index)
    plans = (_played(World(task.house), errands) for errands in _choices(World(task.house), task.goal))
    return min(plans, key=len)


def _choices(world: World, goal: Goal) -> Iterator[list[Action]]:
    """Yield every way to reach the goal: the errands in order, each with the place where it is possible."""
    things = [(thing, where) for thing, where in world.house.things if kind_of(thing) == goal.thing]
    for taken in itertools.permutations(things, goal.count):
        for place in _ends(world, goal):
            errands: list[Action] = []
            for thing, where in taken:
                errands.append(Action("take", thing, where))
                if treatment := TREATMENTS.get(goal.task_type):
                    tool = next(name for name in world.house.places if kind_of(name) == treatment.at)
                    errands.append(Action(goal.task_type, thing, tool))
                errands.append(_last_errand(goal, thing, place))
            yield errands


def _ends(world: World, goal: Goal) -> list[str]:
    """Return where the task can be completed: the lamps, or the places of the goal's kind."""
    if goal.task_type == "light":
        return [thing for thing, _ in world.house.things if kind_of(thing) == goal.place]
    return [place for place in world.house.places if kind_of(place) == goal.place]


def _last_errand(goal: Goal, thing: str, end: str) -> Action:
    return Action("use", end) if goal.task_type == "light" else Action("move", thing, end)


def _played(world: World, errands: list[Action]) -> tuple[str, ...]:
    """Return the actions that do `errands` in order, including the moves between them and the places to open."""
    done: list[str] = []
    for errand in errands:
        place = errand.where or world.place_of(errand.what) or ""
        for step in (Action("go", where=place), Action("open", where=place), errand):
            possible = world.possible()
            if step is errand or (str(errand) not in possible and str(step) in possible):
                world.take(possible[str(step)])
                done.append(str(step))
    return tuple(done)


@dataclass(frozen=True, slots=True)
class Search:
    """What a player without a map knows. Created anew for every reply.

    Attributes:
        task: the task in the words of the opening.
        available: the actions that the last message lists.
        done: the actions taken so far.
    """

    task: str
    available: Sequence[str]
    done: Sequence[str]

    def next_action(self) -> str:
        """Return the next action."""
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
        """Return the available action that matches `wanted`, or one that leads to it, at a place of kind `place`."""
        ways = [wanted, *([rf"open {place} \d+", rf"go to {place} 1"] if place else [])]
        return next((action for way in ways for action in self.available if re.fullmatch(way, action)), None)

    def _onward(self) -> str:
        """Return an action that reveals more: opening something closed here, or going to an unvisited place."""
        opening = (action for action in self.available if action.startswith("open ") and action not in self.done)
        going = (action for action in self.available if action.startswith("go to ") and action not in self.done)
        return next(itertools.chain(opening, going), "look")
