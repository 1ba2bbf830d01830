"""The tasks: equal everywhere, of six types, to be searched for, and each with a plan that does it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headgate_environments.alfworld.environment import DATA_LENGTH, MAX_ROUNDS
from headgate_environments.alfworld.kinds import KINDS, kind_of
from headgate_environments.alfworld.plan import planned_actions
from headgate_environments.alfworld.tasks import MIN_CANDIDATES, ROOMS, TASK_TYPES, household_task
from headgate_environments.alfworld.world import TREATMENTS, World

INDICES = [*range(190), *range(1_000, 1_005), *range(DATA_LENGTH - 5, DATA_LENGTH)]


def test_the_six_types_take_turns():
    assert [household_task(index).goal.task_type for index in range(12)] == [*TASK_TYPES, *TASK_TYPES]


@pytest.mark.parametrize(
    ("index", "goal"),
    [
        (0, "put a potato on a countertop"),
        (1, "look at a statue by the light of a floorlamp"),
        (2, "put a clean dishsponge in a garbagecan"),
        (3, "put a hot plate on a diningtable"),
        (4, "put a cool pan in a cabinet"),
        (5, "put a soapbar and another soapbar in one cabinet"),
    ],
)
def test_what_is_asked_for_is_said_in_words(index, goal):
    assert str(household_task(index).goal) == goal


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_every_type_is_asked_for_in_every_room_that_has_what_it_needs(task_type):
    first = TASK_TYPES.index(task_type)
    rooms = {household_task(index).room for index in range(first, 300, len(TASK_TYPES))}
    if task_type == "light":
        assert rooms == {name for name, room in ROOMS.items() if room.lamp}
    elif task_type in TREATMENTS:
        assert rooms == {
            name for name, room in ROOMS.items() if TREATMENTS[task_type].at in {kind for kind, _, _ in room.places}
        }
    else:
        assert rooms == set(ROOMS)


def test_every_plan_does_its_task_and_leaves_as_many_rounds_for_the_search():
    for index in INDICES:
        task = household_task(index)
        world = World(task.house)
        plan = planned_actions(index)
        assert 3 <= len(plan) <= 11
        assert 2 * len(plan) <= MAX_ROUNDS + 2
        for text in plan:
            assert not task.goal.is_met(world), index
            world.take(world.possible()[text])
        assert task.goal.is_met(world), index


def test_what_is_asked_for_may_lie_at_several_places_and_does_not_lie_where_it_shall_go():
    for index in INDICES:
        task = household_task(index)
        goal = task.goal
        lying = [where for thing, where in task.house.things if kind_of(thing) == goal.thing]
        assert len(lying) >= goal.count
        assert goal.place not in {kind_of(where) for where in lying}
        candidates = {kind_of(place) for place in task.house.places} & KINDS[goal.thing].places - {goal.place}
        assert len(candidates) >= MIN_CANDIDATES


def test_things_lie_where_they_may_be_put():
    for index in INDICES:
        for thing, where in household_task(index).house.things:
            assert kind_of(where) in KINDS[kind_of(thing)].places


def test_tasks_do_not_repeat():
    assert len({household_task(index) for index in range(1_000)}) == 1_000


def test_tasks_do_not_depend_on_how_strings_are_hashed():
    program = (
        "from headgate_environments.alfworld.tasks import household_task as t\n"
        "from headgate_environments.alfworld.plan import planned_actions as p\n"
        "print([(t(i), p(i)) for i in (0, 1, 2, 3, 4, 5, 999_999)])"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert "HouseholdTask" in told[0]
