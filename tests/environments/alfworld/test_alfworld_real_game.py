"""Our houses in ALFWorld's own engine: the same actions, answers and ends.

The engine compiles for minutes and is no dependency: this runs where `pip install alfworld textworld` was done.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from headgate_environments.alfworld.environment import told
from headgate_environments.alfworld.kinds import KINDS, KNIVES, LAMPS, OPENABLE, kind_of
from headgate_environments.alfworld.plan import planned_actions
from headgate_environments.alfworld.tasks import household_task
from headgate_environments.alfworld.world import TREATMENTS, World

WHY = "needs `pip install alfworld textworld`, which compiles for minutes"
alfworld = pytest.importorskip("alfworld", reason=WHY)
textworld = pytest.importorskip("textworld", reason=WHY)

GOALS = {
    "place": "pick_and_place_simple",
    "light": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "two": "pick_two_obj_and_place",
}
NAMED_IN_RULES = {"butterknife": "ButterKnife", "sinkbasin": "SinkBasin"}


def type_of(kind):
    return NAMED_IN_RULES.get(kind, kind.capitalize())


def identifier(name):
    """A name that the game reads back as `name`: it numbers those of a kind downwards in their sorted order."""
    kind, number = name.split()
    stem = kind.removesuffix("basin")
    return f"{stem}_bar_{1000 - int(number):04d}" + ("_bar_basin" if stem != kind else "")


def problem_of(task):
    """The task in the planning language of the game."""
    from alfworld.gen.goal_library import gdict

    objects, facts = ["agent1 - agent", "start - location"], ["(atLocation agent1 start)", "(= (total-cost) 0)"]
    places = {kind_of(place) for place in task.house.places} | {treatment.at for treatment in TREATMENTS.values()}
    things = {kind_of(thing) for thing, _ in task.house.things} | KNIVES
    objects += [f"{type_of(kind)}Type - rtype" for kind in places] + [f"{type_of(kind)}Type - otype" for kind in things]
    for place in task.house.places:
        name = identifier(place)
        objects += [f"{name} - receptacle", f"at_{name} - location"]
        facts += [f"(receptacleAtLocation {name} at_{name})", f"(receptacleType {name} {type_of(kind_of(place))}Type)"]
        facts += [f"(openable {name})"] * (kind_of(place) in OPENABLE)
    for thing, place in task.house.things:
        name, kind = identifier(thing), kind_of(thing)
        objects.append(f"{name} - object")
        facts += [f"(objectType {name} {type_of(kind)}Type)", f"(inReceptacle {name} {identifier(place)})"]
        facts += [f"(objectAtLocation {name} at_{identifier(place)})"]
        facts += [f"({verb}able {name})" for verb in KINDS[kind].bears]
        facts.append(f"({'toggleable' if kind in LAMPS else 'pickupable'} {name})")
    facts += [
        f"(canContain {type_of(place)}Type {type_of(thing)}Type)"
        for thing in things
        for place in places & KINDS[thing].places
    ]
    place = type_of(task.goal.place)
    goal = gdict[GOALS[task.goal.task_type]]["pddl"].format(obj=type_of(task.goal.thing), recep=place, toggle=place)
    return f"(define (problem p) (:domain alfred) (:objects {' '.join(objects)}) (:init {' '.join(facts)}) " + (
        goal.replace("#", "-")
    )


def begun(task):
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    game = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    rules, grammar = (
        next(Path(alfworld.__file__).parent.rglob(name)).read_text() for name in ("alfred.pddl", "alfred.twl2")
    )
    game.load({"pddl_domain": rules, "grammar": grammar, "pddl_problem": problem_of(task)})
    return game


def plain(text):
    """A text with blanks as they should be, and what is seen in one order, since the game has that of its facts."""
    text = re.sub(r" ([.,])", r"\1", " ".join(text.split()))
    head, seen, tail = text.rpartition("you see ")
    return head + seen + str(sorted(re.sub(r"^and ", "", part) for part in tail.rstrip(".").split(", ")))


def assert_same(task, world, state):
    assert {plain(command) for command in state["admissible_commands"]} == set(map(plain, world.possible()))
    assert bool(state["won"]) == task.goal.is_met(world)


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("is_planned", [True, False], ids=["planned", "random"])
def test_our_houses_are_played_as_in_the_game(index, is_planned):
    task, rng = household_task(index), random.Random(index)
    game, world = begun(task), World(task.house)
    state = game.reset()
    assert_same(task, world, state)
    for planned in planned_actions(index) if is_planned else range(25):
        # `help` is told in words of our own, and the game's `look` sees nothing from the middle of the room.
        choices = [text for text in world.possible() if text != "help" and (world.at or text != "look")]
        action = world.possible()[planned if is_planned else rng.choice(choices)]
        world.take(action)
        command = next(text for text in state["admissible_commands"] if plain(text) == plain(str(action)))
        state, _, _ = game.step(command)
        assert plain(state.feedback) == plain(told(world, action))
        assert_same(task, world, state)
    assert state["won"] or not is_planned
