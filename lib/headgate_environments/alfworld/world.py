"""A house in play: where everything is, which actions are possible, and their effects. The rules are ALFWorld's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headgate_environments.alfworld.kinds import KNIVES, LAMPS, OPENABLE, bears, fits, kind_of


@dataclass(frozen=True, slots=True)
class House:
    """A house in its initial state. Names are kinds with numbers, such as `mug 1`.

    Attributes:
        places: all places, in the order in which they are described.
        things: pairs (thing, place where it is).
    """

    places: tuple[str, ...]
    things: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: `verb` names its rule; `what` and `where` are names, empty if the verb takes none."""

    verb: str
    what: str = ""
    where: str = ""

    def __str__(self) -> str:
        return _FORMS.get(self.verb, self.verb).format(what=self.what, where=self.where)


_FORMS: Final = {
    "go": "go to {where}",
    "open": "open {where}",
    "close": "close {where}",
    "take": "take {what} from {where}",
    "move": "move {what} to {where}",
    "examine": "examine {what}",
    "use": "use {what}",
    "clean": "clean {what} with {where}",
    "heat": "heat {what} with {where}",
    "cool": "cool {what} with {where}",
    "slice": "slice {what} with {where}",
}


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a verb does to the thing in hand, at a place of one kind, which may be closed.

    Attributes:
        at: the kind of place.
        makes: the state that the thing gets.
        undoes: the state that the thing loses; None if it keeps all others.
    """

    at: str
    makes: str
    undoes: str | None = None


TREATMENTS: Final = {
    "clean": Treatment("sinkbasin", "clean"),
    "heat": Treatment("microwave", "hot", undoes="cool"),
    "cool": Treatment("fridge", "cool", undoes="hot"),
}


@dataclass(slots=True)
class World:
    """One house in play. Owned by one episode.

    A thing is in hand or at one place, never both, and at most one thing is in hand.

    Attributes:
        house: the house in its initial state.
        at: the place where the player stands; None in the middle of the room.
        held: the thing in hand.
        opened: openable places that are open.
        states: pairs (thing, state), with the states `clean`, `hot`, `cool`, `sliced`, `on`.
    """

    house: House
    at: str | None = None
    held: str | None = None
    opened: set[str] = field(default_factory=set)
    states: set[tuple[str, str]] = field(default_factory=set)
    _where: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._where = dict(self.house.things)

    def things_at(self, place: str) -> list[str]:
        """Return the things in or on `place`, visible or not."""
        return [thing for thing, where in self._where.items() if where == place]

    def place_of(self, thing: str) -> str | None:
        """Return the place of `thing`; None if it is in hand."""
        return self._where.get(thing)

    def shows(self, place: str) -> bool:
        """Return whether the things in or on `place` can be seen and reached from there."""
        return kind_of(place) not in OPENABLE or place in self.opened

    def possible(self) -> dict[str, Action]:
        """Return every action that can be taken now, by its text, sorted."""
        found = {str(action): action for action in self._possible()}
        return dict(sorted(found.items()))

    def take(self, action: Action) -> None:
        """Apply the effect of `action`, which must be possible."""
        _EFFECTS.get(action.verb, _nothing)(self, action)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        there = set(self._where) | ({self.held} if self.held else set())
        assert there == {thing for thing, _ in self.house.things}, "things neither come nor go"
        assert self.held not in self._where, "what is in hand is nowhere else"
        assert all(place in self.house.places for place in self._where.values())
        assert self.at is None or self.at in self.house.places
        assert all(kind_of(place) in OPENABLE for place in self.opened)
        assert not any((thing, "hot") in self.states and (thing, "cool") in self.states for thing in there)

    def _possible(self) -> Iterator[Action]:
        yield from (Action(verb) for verb in ("help", "inventory", "look"))
        yield from (Action("go", where=place) for place in self.house.places if place != self.at)
        if self.held:
            yield Action("examine", self.held)
        if self.at:
            yield from self._possible_at(self.at)

    def _possible_at(self, place: str) -> Iterator[Action]:
        yield Action("examine", place)
        if kind_of(place) in OPENABLE:
            yield Action("close" if place in self.opened else "open", where=place)
        if self.shows(place):
            yield from self._possible_with(self.things_at(place), place)
        if self.held:
            for verb, treatment in TREATMENTS.items():
                if treatment.at == kind_of(place) and bears(self.held, verb):
                    yield Action(verb, self.held, place)

    def _possible_with(self, things: list[str], place: str) -> Iterator[Action]:
        for thing in things:
            if kind_of(thing) in LAMPS:
                yield Action("use", thing)
            elif not self.held:
                yield Action("take", thing, place)
            elif kind_of(self.held) in KNIVES and bears(thing, "slice"):
                yield Action("slice", thing, self.held)
        if self.held and fits(self.held, place):
            yield Action("move", self.held, place)

    def hold(self, thing: str) -> None:
        """Pick up `thing`."""
        del self._where[thing]
        self.held = thing

    def put(self, place: str) -> None:
        """Put the thing in hand in or on `place`."""
        assert self.held is not None  # else the action would not be possible
        self._where[self.held] = place
        self.held = None


def _go(world: World, action: Action) -> None:
    world.at = action.where


def _open(world: World, action: Action) -> None:
    world.opened.add(action.where)


def _close(world: World, action: Action) -> None:
    world.opened.discard(action.where)


def _take(world: World, action: Action) -> None:
    world.hold(action.what)


def _move(world: World, action: Action) -> None:
    world.put(action.where)


def _treat(world: World, action: Action) -> None:
    treatment = TREATMENTS[action.verb]
    world.states.discard((action.what, treatment.undoes or ""))
    world.states.add((action.what, treatment.makes))


def _slice(world: World, action: Action) -> None:
    world.states.add((action.what, "sliced"))


def _use(world: World, action: Action) -> None:
    world.states.add((action.what, "on"))


def _nothing(world: World, action: Action) -> None:
    """Looking changes nothing."""


_EFFECTS: Final[dict[str, Callable[[World, Action], None]]] = {
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "move": _move,
    "clean": _treat,
    "heat": _treat,
    "cool": _treat,
    "slice": _slice,
    "use": _use,
}
