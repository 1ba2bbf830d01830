"""The four rooms: which places a house may have there, and which things lie about in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Room:
    """What houses of one room are drawn from.

    Attributes:
        places: kinds of places, each with how many there are at least and at most.
        things: kinds of things that can lie about.
        lamp: the kind of lamp that every house of this room has one of; None without lamps.
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
"""By name, in an order that every task depends on."""
