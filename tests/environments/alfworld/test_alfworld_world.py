"""The rules of the house: what can be done, what doing it changes, and what is told."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_environments.alfworld.environment import room_told, told
from headgate_environments.alfworld.kinds import KINDS, OPENABLE, kind_of
from headgate_environments.alfworld.tasks import ROOMS, Goal, household_task
from headgate_environments.alfworld.world import House, World

KITCHEN = House(
    places=("cabinet 1", "countertop 1", "fridge 1", "garbagecan 1", "microwave 1", "sinkbasin 1"),
    things=(("apple 1", "fridge 1"), ("knife 1", "countertop 1"), ("mug 1", "cabinet 1"), ("potato 1", "countertop 1")),
)
BEDROOM = House(
    places=("bed 1", "desk 1", "drawer 1"),
    things=(("book 1", "bed 1"), ("desklamp 1", "desk 1"), ("pen 1", "drawer 1")),
)

ON_THE_COUNTERTOP = "On the countertop 1, you see a knife 1, and a potato 1."
OPENING = ["go to fridge 1", "open fridge 1"]
TAKING_THE_KNIFE = ["go to countertop 1", "take knife 1 from countertop 1"]


def after(house, *actions):
    """The world after `actions`, and what was told last."""
    world, said = World(house), ""
    for text in actions:
        action = world.possible()[text]
        world.take(action)
        world.validate()
        said = told(world, action)
    return world, said


def test_the_room_is_told_from_its_middle():
    world, said = after(BEDROOM, "look")
    assert said == room_told(world)
    assert said.endswith("Looking quickly around you, you see a bed 1, a desk 1, and a drawer 1.")
    assert list(world.possible()) == ["go to bed 1", "go to desk 1", "go to drawer 1", "help", "inventory", "look"]


@pytest.mark.parametrize(
    ("house", "actions", "said"),
    [
        (KITCHEN, ["go to countertop 1"], f"You arrive at countertop 1. {ON_THE_COUNTERTOP}"),
        (KITCHEN, ["go to garbagecan 1"], "You arrive at garbagecan 1. On the garbagecan 1, you see nothing."),
        (KITCHEN, ["go to fridge 1"], "You arrive at fridge 1. The fridge 1 is closed."),
        (KITCHEN, OPENING, "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."),
        (KITCHEN, [*OPENING, "close fridge 1"], "You close the fridge 1."),
        (KITCHEN, TAKING_THE_KNIFE, "You pick up the knife 1 from the countertop 1."),
        (KITCHEN, ["go to countertop 1", "look"], "You are facing the countertop 1. Next to it, you see nothing."),
        (KITCHEN, ["inventory"], "You are not carrying anything."),
        (BEDROOM, ["go to bed 1", "take book 1 from bed 1", "inventory"], "You are carrying: a book 1."),
        (BEDROOM, ["go to bed 1", "take book 1 from bed 1", "examine book 1"], "There's nothing special about book 1."),
        (BEDROOM, ["go to bed 1", "examine bed 1"], "On the bed 1, you see a book 1."),
        (BEDROOM, ["go to desk 1", "use desklamp 1"], "You turn on the desklamp 1."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_done_is_told_as_in_the_game(house, actions, said):
    assert after(house, *actions)[1] == said


def test_what_is_behind_a_door_can_only_be_taken_when_it_is_open():
    assert "take apple 1 from fridge 1" not in after(KITCHEN, "go to fridge 1")[0].possible()
    assert "take apple 1 from fridge 1" in after(KITCHEN, "go to fridge 1", "open fridge 1")[0].possible()


def test_a_thing_is_moved_to_where_such_things_belong_and_nowhere_else():
    holding = ["go to countertop 1", "take potato 1 from countertop 1"]
    world, said = after(KITCHEN, *holding, "go to sinkbasin 1", "move potato 1 to sinkbasin 1")
    assert said == "You move the potato 1 to the sinkbasin 1."
    assert (world.held, world.things_at("sinkbasin 1")) == (None, ["potato 1"])
    world, _ = after(KITCHEN, *holding, "go to cabinet 1", "open cabinet 1")
    assert not any(action.startswith("move") for action in world.possible())


def test_nobody_takes_a_second_thing():
    world, _ = after(KITCHEN, "go to countertop 1", "take potato 1 from countertop 1")
    assert not any(action.startswith("take") for action in world.possible())


@pytest.mark.parametrize(
    ("actions", "told_of_it"),
    [
        (["go to sinkbasin 1", "clean potato 1 with sinkbasin 1"], "This is a clean potato 1."),
        (["go to microwave 1", "heat potato 1 with microwave 1"], "This is a hot potato 1."),
        (["go to fridge 1", "cool potato 1 with fridge 1"], "This is a cool potato 1."),
        (
            [
                "go to sinkbasin 1",
                "clean potato 1 with sinkbasin 1",
                "go to microwave 1",
                "heat potato 1 with microwave 1",
                "go to fridge 1",
                "cool potato 1 with fridge 1",
            ],
            "This is a cool and clean potato 1.",
        ),
    ],
)
def test_what_is_in_hand_is_cleaned_heated_and_cooled_where_that_is_done(actions, told_of_it):
    taking = ["go to countertop 1", "take potato 1 from countertop 1"]
    assert after(KITCHEN, *taking, *actions, "examine potato 1")[1] == told_of_it


def test_a_knife_in_hand_slices_what_lies_there():
    world, said = after(KITCHEN, *TAKING_THE_KNIFE, "slice potato 1 with knife 1")
    assert said == "You sliced the potato 1 with the knife 1."
    assert ("potato 1", "sliced") in world.states
    closed, _ = after(KITCHEN, *TAKING_THE_KNIFE, "go to fridge 1")
    assert "slice apple 1 with knife 1" not in closed.possible()


def test_lamps_stay_where_they_are():
    assert "take desklamp 1 from desk 1" not in after(BEDROOM, "go to desk 1")[0].possible()


def test_a_thing_is_looked_at_when_it_is_in_hand_next_to_a_lamp_that_is_on():
    goal = Goal("light", "book", "desklamp")
    taking = ["go to bed 1", "take book 1 from bed 1"]
    assert not goal.is_met(after(BEDROOM, "go to desk 1", "use desklamp 1")[0])
    assert not goal.is_met(after(BEDROOM, "go to desk 1", "use desklamp 1", *taking)[0])
    assert not goal.is_met(after(BEDROOM, *taking, "go to desk 1")[0])
    assert goal.is_met(after(BEDROOM, *taking, "go to desk 1", "use desklamp 1")[0])
    assert goal.is_met(after(BEDROOM, "go to desk 1", "use desklamp 1", *taking, "go to desk 1")[0])


def test_two_things_count_where_they_lie_together():
    two = House(("drawer 1", "drawer 2", "desk 1"), (("pen 1", "drawer 1"), ("pen 2", "drawer 2"), ("pen 3", "desk 1")))
    goal = Goal("two", "pen", "drawer")
    taking = ["go to desk 1", "take pen 3 from desk 1"]
    assert not goal.is_met(World(two))
    assert goal.is_met(after(two, *taking, "go to drawer 2", "open drawer 2", "move pen 3 to drawer 2")[0])


def test_a_thing_in_the_right_place_must_be_in_the_right_state():
    goal = Goal("clean", "potato", "garbagecan")
    taking = ["go to countertop 1", "take potato 1 from countertop 1"]
    putting = ["go to garbagecan 1", "move potato 1 to garbagecan 1"]
    assert not goal.is_met(after(KITCHEN, *taking, *putting)[0])
    washing = ["go to sinkbasin 1", "clean potato 1 with sinkbasin 1"]
    assert goal.is_met(after(KITCHEN, *taking, *washing, *putting)[0])
    assert not goal.is_met(after(KITCHEN, *taking, *washing)[0])


@given(index=st.integers(0, 10_000), choices=st.lists(st.integers(0, 10_000), max_size=60))
def test_no_play_makes_or_loses_things_and_every_listed_action_works(index, choices):
    world = World(household_task(index).house)
    for choice in choices:
        possible = world.possible()
        assert list(possible) == sorted(possible)
        action = possible[sorted(possible)[choice % len(possible)]]
        before = deepcopy(world)
        world.take(action)
        world.validate()
        assert told(world, action)
        looks_only = action.verb in ("examine", "help", "inventory", "look")
        repeats = action.verb in ("use", "clean", "heat", "cool", "slice")
        assert repeats or (world == before) == looks_only


def test_the_rooms_have_places_for_everything_that_lies_about_there():
    for room in ROOMS.values():
        certain = {kind for kind, least, _ in room.places if least}
        for thing in (*room.things, *filter(None, [room.lamp])):
            assert KINDS[thing].places & certain, thing
    assert {kind for room in ROOMS.values() for kind, _, _ in room.places} >= OPENABLE
    assert kind_of("mug 12") == "mug"
