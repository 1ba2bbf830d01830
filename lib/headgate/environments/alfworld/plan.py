"""The solver: the shortest way to do a task for one who knows where everything is, one errand after the other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from headgate.environments.alfworld.goals import Goal
from headgate.environments.alfworld.kinds import kind_of
from headgate.environments.alfworld.tasks import household_task
from headgate.environments.alfworld.world import TREATMENTS, Action, World


@functools.lru_cache(maxsize=4096)
def planned_actions(index: int) -> tuple[str, ...]:
    """Return the actions that do task `index`: of all choices of things and places, those with the fewest actions."""
    task = household_task(index)
    plans = (_played(World(task.house), errands) for errands in _choices(World(task.house), task.goal))
    return min(plans, key=len)


def _choices(world: World, goal: Goal) -> Iterator[list[Action]]:
    """Yield every way to do it: what is to be done in order, each thing where it is possible."""
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
    """Return where the task can be brought to its end: the lamps, or the places of the kind."""
    if goal.task_type == "light":
        return [thing for thing, _ in world.house.things if kind_of(thing) == goal.place]
    return [place for place in world.house.places if kind_of(place) == goal.place]


def _last_errand(goal: Goal, thing: str, end: str) -> Action:
    return Action("use", end) if goal.task_type == "light" else Action("move", thing, end)


def _played(world: World, errands: list[Action]) -> tuple[str, ...]:
    """Return the actions that do `errands` in order, with the ways between them and what is to be opened."""
    done: list[str] = []
    for errand in errands:
        place = errand.where or world.place_of(errand.what) or ""
        for step in (Action("go", where=place), Action("open", where=place), errand):
            possible = world.possible()
            if step is errand or (str(errand) not in possible and str(step) in possible):
                world.take(possible[str(step)])
                done.append(str(step))
    return tuple(done)
