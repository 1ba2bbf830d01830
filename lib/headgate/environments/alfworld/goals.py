"""What is asked for in a house: the six kinds of tasks of ALFWorld, said in words and judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from headgate.environments.alfworld.kinds import OPENABLE, kind_of
from headgate.environments.alfworld.world import TREATMENTS, World

TaskType = Literal["place", "light", "clean", "heat", "cool", "two"]

TASK_TYPES: Final[tuple[TaskType, ...]] = ("place", "light", "clean", "heat", "cool", "two")
"""In the order of the indices; each has every sixth task."""

_HOLLOW: Final = OPENABLE | {"bathtubbasin", "garbagecan", "sinkbasin"}
"""Kinds of places that things are put in, not on."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked for.

    Attributes:
        task_type: which of the six.
        thing: the kind of thing that it is about.
        place: the kind of place that it shall be put in or on; the kind of lamp for `light`.
    """

    task_type: TaskType
    thing: str
    place: str

    @property
    def count(self) -> int:
        """How many things it takes."""
        return 2 if self.task_type == "two" else 1

    @property
    def state(self) -> str | None:
        """The state that the thing has to be in; None if any will do."""
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
        """Return whether `world` is as it is asked for; what was so once and is no more does not count."""
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
