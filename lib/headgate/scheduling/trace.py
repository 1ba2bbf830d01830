"""Where scheduling tells what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from headgate.core import Task
from headgate.core.events import Emit, Event

What = ParamSpec("What")


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of scheduling events to their sinks; without one, none is made.

    Attributes:
        emit: takes an event.
        run_id: of the run, the first field of every event.
        trace_of: the trace id of a task's sample, where it has one before it runs.
    """

    emit: Emit
    run_id: str = ""
    trace_of: Callable[[Task], str] = lambda _: ""

    def tell(self, kind: Callable[Concatenate[str, What], Event], *what: What.args, **named: What.kwargs) -> None:
        """Make an event of this run and emit it."""
        self.emit(kind(self.run_id, *what, **named))
