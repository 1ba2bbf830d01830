"""Where scheduling tells what happened: only what somebody wants is made at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.core import Task
from headgate.core.events import Emit, Event


def _wants_all(_kind: type[Event]) -> bool:
    return True


def _no_trace(_task: Task) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of scheduling events to their sinks.

    Attributes:
        emit: takes an event.
        wants: whether any sink takes events of a type; asked before one is made.
        run_id: of the run, on every event.
        trace_of: the trace id of a task's sample, where it has one before it runs.
    """

    emit: Emit
    wants: Callable[[type[Event]], bool] = _wants_all
    run_id: str = ""
    trace_of: Callable[[Task], str] = _no_trace
