"""The base class of every event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Event:
    """Anything that happened. The stream stamps it with time and sequence number when it is emitted.

    A kind of event is a subclass, which becomes a dataclass automatically. `log_level` is the level of its log line:
    `DEBUG` for what happens once per task, sample or request, or whenever a limit moves.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    log_level: ClassVar[int] = logging.INFO

    def __init_subclass__(cls, log_level: int | None = None) -> None:
        """Make a kind of event; `log_level` defaults to the base's."""
        dataclass(repr=False, eq=False)(cls)
        if log_level is not None:
            cls.log_level = log_level

    # Defined once: generated for each of the hundred and sixty kinds, they would take most of the import time.

    def __repr__(self) -> str:
        """Return the repr that a dataclass has."""
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        """Return whether another event has the same kind and values."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)

    def __hash__(self) -> int:
        """Return a hash that is the same for equal events."""
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))


Emit = Callable[[Event], None]
"""How any part reports what happened; never raises, never blocks."""


def unheard(_: Event) -> None:
    """Discard an event."""
