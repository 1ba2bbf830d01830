"""What the player is told, in the form in which ALFWorld tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate_environments.alfworld.kinds import OPENABLE, kind_of
from headgate_environments.alfworld.world import Action, World

NOTHING_HAPPENS: Final = "Nothing happens."

_HELP: Final = """\
You can say, if it is possible where you are:
go to <place>, open <place>, close <place>, examine <place or thing in hand>, take <thing> from <place>, \
move <thing> to <place>, clean <thing> with <sinkbasin>, heat <thing> with <microwave>, cool <thing> with <fridge>, \
slice <thing> with <knife>, use <lamp>, look, inventory, help."""

_DEEDS: Final = {
    "go": "You arrive at {where}.",
    "open": "You open the {where}.",
    "close": "You close the {where}.",
    "take": "You pick up the {what} from the {where}.",
    "move": "You move the {what} to the {where}.",
    "use": "You turn on the {what}.",
    "clean": "You clean the {what} using the {where}.",
    "heat": "You heat the {what} using the {where}.",
    "cool": "You cool the {what} using the {where}.",
    "slice": "You sliced the {what} with the {where}.",
    "help": _HELP,
}


def told(world: World, action: Action) -> str:
    """Return what the player is told after `action` has been taken in `world`."""
    match action.verb:
        case "examine" if action.what in world.house.places:
            return _place_told(world, action.what)
        case "examine":
            return _thing_told(world, action.what)
        case "look":
            return f"You are facing the {world.at}. Next to it, you see nothing." if world.at else room_told(world)
        case "inventory":
            return f"You are carrying: a {world.held}." if world.held else "You are not carrying anything."
        case "go" | "open":
            return f"{_deed_told(action)} {_place_told(world, action.where)}"
        case _:
            return _deed_told(action)


def room_told(world: World) -> str:
    """Return what can be seen from the middle of the room."""
    return f"You are in the middle of a room. Looking quickly around you, you see {_listed(world.house.places)}."


def _place_told(world: World, place: str) -> str:
    if kind_of(place) not in OPENABLE:
        return f"On the {place}, you see {_listed(world.things_at(place))}."
    if place in world.opened:
        return f"The {place} is open. In it, you see {_listed(world.things_at(place))}."
    return f"The {place} is closed."


def _thing_told(world: World, thing: str) -> str:
    states = [state for state in ("hot", "cool", "clean") if (thing, state) in world.states]
    words = " and ".join(states)
    if (thing, "sliced") in world.states:
        words = f"{words} sliced".strip()
    return f"This is a {words} {thing}." if words else f"There's nothing special about {thing}."


def _deed_told(action: Action) -> str:
    return _DEEDS[action.verb].format(what=action.what, where=action.where)


def _listed(names: Iterable[str]) -> str:
    """Return `a mug 1, and a plate 2`: every name has the article `a`, and the last one `and`, as ALFWorld has it."""
    told = [f"a {name}" for name in names]
    if len(told) > 1:
        told[-1] = f"and {told[-1]}"
    return ", ".join(told) or "nothing"
