"""What every event is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, dataclass_transform

from headgate.core.record import record


@dataclass_transform(frozen_default=True)
@record
class Event:
    """Anything that happened. The stream stamps it with time and sequence number when it is emitted.

    A kind of event is a subclass, which becomes a dataclass as `record` makes it. `log_level` is that of its log line:
    `DEBUG` for what happens once per task, sample or request, or whenever a limit moves.
    """

    log_level: ClassVar[int] = logging.INFO

    def __init_subclass__(cls, log_level: int | None = None) -> None:
        """Make a kind of event; without `log_level` it has its base's."""
        dataclass(unsafe_hash=True)(cls)
        if log_level is not None:
            cls.log_level = log_level


Emit = Callable[[Event], None]
"""How any part tells what happened; never raises, never blocks."""
