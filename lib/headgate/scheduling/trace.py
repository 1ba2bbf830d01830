"""Where scheduling reports its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from headgate.core import Task
from headgate.core.events import Emit, Event

What = ParamSpec("What")


@dataclass(frozen=True, slots=True)
class Trace:
    """Sends scheduling events to their sinks; without a trace, no event is created.

    Attributes:
        emit: receives each event.
        run_id: the run's id, the first field of every event.
        trace_of: returns the trace id of a task's sample if it has one before it runs, else an empty string.
    """

    emit: Emit
    run_id: str = ""
    trace_of: Callable[[Task], str] = lambda _: ""

    def tell(self, kind: Callable[Concatenate[str, What], Event], *what: What.args, **named: What.kwargs) -> None:
        """Create an event of this run and emit it."""
        self.emit(kind(self.run_id, *what, **named))
