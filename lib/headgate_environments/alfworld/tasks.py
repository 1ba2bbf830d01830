"""The tasks: the house that an index draws, and the goal in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headgate_environments.alfworld.kinds import KINDS, LAMPS, OPENABLE, kind_of
from headgate_environments.alfworld.world import TREATMENTS, House, World


@dataclass(frozen=True, slots=True)
class Room:
    """The distribution of houses with one type of room.

    Attributes:
        places: kinds of places, each with its minimum and maximum number.
        things: kinds of things that may occur.
        lamp: the kind of lamp of which every such house has one; None without lamps.
    """

    places: tuple[tuple[str, int, int], ...]
    things: tuple[str, ...]
    lamp: str | None = None


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ROOMS: Final = {
    "kitchen": Room(
        places=(
            ("cabinet", 3, 6),
            ("coffeemachine", 1, 1),
            ("countertop", 1, 3),
            ("diningtable", 0, 1),
            ("drawer", 2, 5),
            ("fridge", 1, 1),
            ("garbagecan", 1, 1),
            ("microwave", 1, 1),
            ("shelf", 0, 2),
            ("sinkbasin", 1, 1),
            ("stoveburner", 2, 4),
        ),
        things=_words(
            "apple bowl bread butterknife cup dishsponge egg fork glassbottle kettle knife ladle lettuce mug pan "
            "peppershaker plate pot potato saltshaker spatula spoon tomato winebottle"
        ),
    ),
    "livingroom": Room(
        places=(
            ("armchair", 1, 2),
            ("cabinet", 0, 2),
            ("coffeetable", 1, 1),
            ("diningtable", 0, 1),
            ("drawer", 2, 5),
            ("dresser", 0, 1),
            ("garbagecan", 1, 1),
            ("ottoman", 0, 1),
            ("safe", 0, 1),
            ("shelf", 1, 4),
            ("sidetable", 1, 2),
            ("sofa", 1, 1),
            ("tvstand", 1, 1),
        ),
        things=_words(
            "book cellphone creditcard keychain laptop newspaper pen pillow remotecontrol statue tissuebox vase watch "
            "wateringcan"
        ),
        lamp="floorlamp",
    ),
    "bedroom": Room(
        places=(
            ("armchair", 0, 1),
            ("bed", 1, 1),
            ("cabinet", 0, 1),
            ("desk", 1, 2),
            ("drawer", 3, 6),
            ("dresser", 0, 1),
            ("garbagecan", 1, 1),
            ("safe", 0, 1),
            ("shelf", 2, 5),
            ("sidetable", 1, 2),
        ),
        things=_words(
            "alarmclock baseballbat basketball book cd cellphone creditcard keychain laptop mug pen pencil pillow "
            "tennisracket tissuebox watch"
        ),
        lamp="desklamp",
    ),
    "bathroom": Room(
        places=(
            ("bathtubbasin", 0, 1),
            ("cabinet", 2, 5),
            ("cart", 0, 1),
            ("countertop", 1, 2),
            ("drawer", 2, 4),
            ("garbagecan", 1, 1),
            ("handtowelholder", 1, 2),
            ("sinkbasin", 1, 2),
            ("toilet", 1, 1),
            ("toiletpaperhanger", 1, 1),
            ("towelholder", 1, 1),
        ),
        things=_words(
            "candle cloth dishsponge handtowel plunger soapbar soapbottle spraybottle tissuebox toiletpaper towel"
        ),
    ),
}
"""By name. The order matters: every task depends on it."""


TaskType = Literal["place", "light", "clean", "heat", "cool", "two"]

TASK_TYPES: Final[tuple[TaskType, ...]] = ("place", "light", "clean", "heat", "cool", "two")
"""In the order of the indices; each has every sixth task."""

_HOLLOW: Final = OPENABLE | {"bathtubbasin", "garbagecan", "sinkbasin"}
"""Kinds of places that things are put in, not on."""

MIN_CANDIDATES: Final = 3
"""Minimum number of kinds of places where a wanted thing may be, so that the player has to search."""

_COUNTS: Final = (0, 1, 1, 1, 2)
"""Possible numbers of things of a kind that is not wanted; each kind draws one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a task asks for.

    Attributes:
        task_type: one of the six types.
        thing: the kind of thing to use.
        place: the kind of place to put it in or on; for `light`, the kind of lamp.
    """

    task_type: TaskType
    thing: str
    place: str

    @property
    def count(self) -> int:
        """Number of things that it takes."""
        return 2 if self.task_type == "two" else 1

    @property
    def state(self) -> str | None:
        """The required state of the thing; None if any state will do."""
        treatment = TREATMENTS.get(self.task_type)
        return treatment.makes if treatment else None

    def __str__(self) -> str:
        if self.task_type == "light":
            return f"look at {_a(self.thing)} by the light of {_a(self.place)}"
        where = f"{'in' if self.place in _HOLLOW else 'on'}"
        if self.task_type == "two":
            return f"put {_a(self.thing)} and another {self.thing} {where} one {self.place}"
        thing = f"{self.state} {self.thing}" if self.state else self.thing
        return f"put {_a(thing)} {where} {_a(self.place)}"

    def is_met(self, world: World) -> bool:
        """Return whether `world` meets the goal now; having met it earlier does not count."""
        if self.task_type == "light":
            return self._is_looked_at(world)
        places = (place for place in world.house.places if kind_of(place) == self.place)
        return any(self._served_at(world, place) >= self.count for place in places)

    def _served_at(self, world: World, place: str) -> int:
        return sum(
            kind_of(thing) == self.thing and (self.state is None or (thing, self.state) in world.states)
            for thing in world.things_at(place)
        )

    def _is_looked_at(self, world: World) -> bool:
        """Return whether the thing is in hand, next to a lamp that is on."""
        if world.held is None or world.at is None or kind_of(world.held) != self.thing:
            return False
        return any(kind_of(lamp) == self.place and (lamp, "on") in world.states for lamp in world.things_at(world.at))


def _a(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@dataclass(frozen=True, slots=True)
class HouseholdTask:
    """A house and a goal in it; the house does not meet any part of the goal yet."""

    room: str
    house: House
    goal: Goal


def household_task(index: int) -> HouseholdTask:
    """Return task `index`, of the type `index % 6`; everything else is drawn."""
    rng = random.Random(f"alfworld:{index}")
    task_type = TASK_TYPES[index % len(TASK_TYPES)]
    name = rng.choice([name for name, room in ROOMS.items() if _has(room, task_type)])
    room = ROOMS[name]
    places = _drawn_places(room, rng)
    goal = _drawn_goal(task_type, room, sorted({kind_of(place) for place in places}), rng)
    return HouseholdTask(name, House(places, tuple(_drawn_things(room, places, goal, rng))), goal)


def _has(room: Room, task_type: TaskType) -> bool:
    """Return whether `room` has what tasks of this type need."""
    if task_type == "light":
        return room.lamp is not None
    treatment = TREATMENTS.get(task_type)
    return treatment is None or treatment.at in (place for place, _, _ in room.places)


def _drawn_places(room: Room, rng: random.Random) -> tuple[str, ...]:
    return tuple(
        f"{kind} {number}" for kind, least, most in room.places for number in range(1, rng.randint(least, most) + 1)
    )


def _drawn_goal(task_type: TaskType, room: Room, kinds: list[str], rng: random.Random) -> Goal:
    """Return a goal for a house with these kinds of places."""
    goals: dict[str, list[Goal]] = {}
    for goal in _goals(task_type, room, kinds):
        goals.setdefault(goal.thing, []).append(goal)
    return rng.choice(goals[rng.choice(list(goals))])


def _goals(task_type: TaskType, room: Room, kinds: list[str]) -> Iterator[Goal]:
    treatment = TREATMENTS.get(task_type)
    for thing in room.things:
        if treatment and task_type not in KINDS[thing].bears:
            continue
        fitting = [kind for kind in kinds if kind in KINDS[thing].places]
        if room.lamp and task_type == "light" and len(fitting) >= MIN_CANDIDATES:
            yield Goal(task_type, thing, room.lamp)
        elif task_type != "light" and len(fitting) > MIN_CANDIDATES:
            yield from (
                Goal(task_type, thing, place) for place in fitting if treatment is None or place != treatment.at
            )


def _drawn_things(room: Room, places: tuple[str, ...], goal: Goal, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield things with their places: first a fitting kind of place is drawn, then one place of that kind."""
    for kind in (*room.things, *filter(None, [room.lamp])):
        fitting = {kind_of(place) for place in places} & KINDS[kind].places
        if kind == goal.thing:
            fitting.discard(goal.place)
        for number in range(1, (_drawn_count(kind, goal, rng) if fitting else 0) + 1):
            where = rng.choice(sorted(fitting))
            yield f"{kind} {number}", rng.choice([place for place in places if kind_of(place) == where])


def _drawn_count(kind: str, goal: Goal, rng: random.Random) -> int:
    if kind in LAMPS:
        return 1
    return goal.count + rng.randint(0, 1) if kind == goal.thing else rng.choice(_COUNTS)
