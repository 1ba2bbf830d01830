"""What every event is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened. The stream stamps it with time and sequence number when it is emitted."""


Emit = Callable[[Event], None]
"""How any part tells what happened; never raises, never blocks."""
