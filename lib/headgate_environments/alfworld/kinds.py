"""The contents of the houses: kinds of places and things, which thing fits where, and what can be done with it.

The facts are ALFWorld's, for all things and places that occur together in one of our rooms. Only the places of lamps
are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPENABLE: Final = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
"""Kinds of places that are closed initially."""

LAMPS: Final = frozenset({"desklamp", "floorlamp"})
"""Kinds of things that stay where they are and can be used."""

KNIVES: Final = frozenset({"butterknife", "knife"})
"""Kinds of things that slice others."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Facts about all things of one kind.

    Attributes:
        places: kinds of places that they may be put in or on, and are found at.
        bears: treatments that can be applied to them: `clean`, `heat`, `cool`, `slice`.
    """

    places: frozenset[str]
    bears: frozenset[str]


_TABLES: Final = "coffeetable diningtable sidetable"
_FURNITURE: Final = f"{_TABLES} desk dresser shelf"
_SEATS: Final = "armchair ottoman sofa"
_WORKTOPS: Final = "countertop diningtable sidetable"
_BATH: Final = "cabinet cart countertop drawer toilet"


def _kind(places: str, bears: str = "") -> Kind:
    return Kind(frozenset(places.split()), frozenset(bears.split()))


KINDS: Final = {
    "alarmclock": _kind(f"{_FURNITURE} countertop"),
    "apple": _kind(f"{_WORKTOPS} fridge garbagecan microwave sinkbasin", "clean heat cool slice"),
    "baseballbat": _kind(f"{_TABLES} bed"),
    "basketball": _kind(f"{_TABLES} {_SEATS} bed desk dresser"),
    "book": _kind(f"{_FURNITURE} {_SEATS} bed cabinet drawer"),
    "bowl": _kind(f"{_WORKTOPS} cabinet desk dresser fridge microwave shelf sinkbasin", "clean cool"),
    "bread": _kind(f"{_WORKTOPS} fridge garbagecan microwave", "heat cool slice"),
    "butterknife": _kind(f"{_WORKTOPS} drawer sinkbasin", "clean"),
    "candle": _kind(f"{_FURNITURE} {_BATH}"),
    "cd": _kind(f"{_FURNITURE} cabinet drawer garbagecan safe"),
    "cellphone": _kind(f"{_FURNITURE} {_SEATS} bed drawer safe"),
    "cloth": _kind(f"{_BATH} bathtubbasin garbagecan shelf sinkbasin", "clean"),
    "creditcard": _kind(f"{_FURNITURE} {_SEATS} drawer safe"),
    "cup": _kind(f"{_WORKTOPS} cabinet fridge microwave shelf sinkbasin", "clean heat cool"),
    "desklamp": _kind("desk dresser shelf sidetable"),
    "dishsponge": _kind(f"{_WORKTOPS} bathtubbasin cabinet cart drawer garbagecan shelf sinkbasin toilet", "clean"),
    "egg": _kind(f"{_WORKTOPS} fridge garbagecan microwave sinkbasin", "clean heat cool slice"),
    "floorlamp": _kind("coffeetable dresser sidetable"),
    "fork": _kind(f"{_WORKTOPS} drawer sinkbasin", "clean"),
    "glassbottle": _kind(f"{_WORKTOPS} cabinet fridge microwave shelf sinkbasin"),
    "handtowel": _kind(f"{_BATH} bathtubbasin garbagecan handtowelholder sinkbasin"),
    "kettle": _kind(f"{_WORKTOPS} cabinet shelf sinkbasin stoveburner", "clean"),
    "keychain": _kind(f"{_FURNITURE} {_SEATS} drawer safe"),
    "knife": _kind(f"{_WORKTOPS} drawer sinkbasin", "clean"),
    "ladle": _kind(f"{_WORKTOPS} cabinet drawer sinkbasin", "clean"),
    "laptop": _kind(f"{_TABLES} {_SEATS} bed desk dresser"),
    "lettuce": _kind(f"{_WORKTOPS} fridge garbagecan sinkbasin", "clean cool slice"),
    "mug": _kind(
        f"{_WORKTOPS} cabinet coffeemachine desk dresser fridge microwave shelf sinkbasin",
        "clean heat cool",
    ),
    "newspaper": _kind(f"{_FURNITURE} {_SEATS} bed cabinet drawer garbagecan"),
    "pan": _kind(f"{_WORKTOPS} cabinet fridge sinkbasin stoveburner", "clean cool"),
    "pen": _kind(f"{_FURNITURE} drawer garbagecan"),
    "pencil": _kind(f"{_FURNITURE} drawer garbagecan"),
    "peppershaker": _kind(f"{_WORKTOPS} cabinet drawer shelf"),
    "pillow": _kind(f"{_SEATS} bed"),
    "plate": _kind(f"{_WORKTOPS} cabinet fridge microwave shelf sinkbasin", "clean heat cool"),
    "plunger": _kind("cabinet cart"),
    "pot": _kind(f"{_WORKTOPS} cabinet fridge shelf sinkbasin stoveburner", "clean cool"),
    "potato": _kind(f"{_WORKTOPS} fridge garbagecan microwave sinkbasin", "clean heat cool slice"),
    "remotecontrol": _kind(f"{_FURNITURE} {_SEATS} drawer"),
    "saltshaker": _kind(f"{_WORKTOPS} cabinet drawer shelf"),
    "soapbar": _kind(f"{_BATH} bathtubbasin garbagecan sinkbasin", "clean"),
    "soapbottle": _kind(f"{_BATH} garbagecan shelf"),
    "spatula": _kind(f"{_WORKTOPS} drawer sinkbasin", "clean"),
    "spoon": _kind(f"{_WORKTOPS} drawer sinkbasin", "clean"),
    "spraybottle": _kind(f"{_BATH} garbagecan shelf"),
    "statue": _kind(f"{_FURNITURE} safe"),
    "tennisracket": _kind(f"{_TABLES} bed desk dresser"),
    "tissuebox": _kind(f"{_FURNITURE} {_BATH} garbagecan tvstand"),
    "toiletpaper": _kind(f"{_BATH} garbagecan shelf toiletpaperhanger"),
    "tomato": _kind(f"{_WORKTOPS} fridge garbagecan microwave sinkbasin", "clean heat cool slice"),
    "towel": _kind("towelholder"),
    "vase": _kind(f"{_FURNITURE} cabinet safe"),
    "watch": _kind(f"{_FURNITURE} drawer safe"),
    "wateringcan": _kind(f"{_FURNITURE} cabinet drawer"),
    "winebottle": _kind(f"{_WORKTOPS} cabinet fridge garbagecan shelf", "cool"),
}


def kind_of(name: str) -> str:
    """Return `mug` for `mug 2`."""
    return name.partition(" ")[0]


def fits(thing: str, place: str) -> bool:
    """Return whether `thing` may be put in or on `place`; both are names with numbers."""
    return kind_of(place) in KINDS[kind_of(thing)].places


def bears(thing: str, treatment: str) -> bool:
    """Return whether `treatment` can be applied to `thing`."""
    return treatment in KINDS[kind_of(thing)].bears
