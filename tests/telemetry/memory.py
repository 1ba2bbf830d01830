"""The last events, kept in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headgate.core import events
from headgate.telemetry.stream import Handler, Recorded

E = TypeVar("E", bound=events.Event)


class MemorySink:
    """The last `capacity` events of the wanted types, oldest first. `dropped` counts those that made room."""

    def __init__(self, capacity: int = 10_000, wants: Iterable[type[events.Event]] = (events.Event,)) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 (got {capacity})")
        self._events: deque[Recorded[Any]] = deque(maxlen=capacity)
        self._capacity = capacity
        self._seen = 0
        self._handlers: dict[type[events.Event], Handler] = dict.fromkeys(wants, self._keep)

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """The types given as `wants`."""
        return self._handlers

    @property
    def recorded(self) -> tuple[Recorded[Any], ...]:
        """What is held now, oldest first."""
        return tuple(self._events)

    @property
    def dropped(self) -> int:
        """How many events were held once and made room for newer ones."""
        return max(0, self._seen - self._capacity)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type, oldest first, without their stamps."""
        return [recorded.event for recorded in self._events if isinstance(recorded.event, kind)]

    def close(self) -> None:
        """Nothing is open; what is held stays readable."""

    def _keep(self, recorded: Recorded[Any]) -> None:
        self._seen += 1
        self._events.append(recorded)
