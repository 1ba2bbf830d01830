"""What every event is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Event:
    """Anything that happened. The stream stamps it with time and sequence number when it is emitted.

    A kind of event is a subclass, which becomes a dataclass by being one. `log_level` is that of its log line:
    `DEBUG` for what happens once per task, sample or request, or whenever a limit moves.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    log_level: ClassVar[int] = logging.INFO

    def __init_subclass__(cls, log_level: int | None = None) -> None:
        """Make a kind of event; without `log_level` it has its base's."""
        dataclass(repr=False, eq=False)(cls)
        if log_level is not None:
            cls.log_level = log_level

    # Written once: for each of the hundred and sixty kinds they would take most of the time that importing them takes.

    def __repr__(self) -> str:
        """Return it as a dataclass is shown."""
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        """Return whether another is of its kind and has its values."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)

    def __hash__(self) -> int:
        """Return the same for what is equal."""
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))


Emit = Callable[[Event], None]
"""How any part tells what happened; never raises, never blocks."""


def unheard(_: Event) -> None:
    """Tell nobody."""
