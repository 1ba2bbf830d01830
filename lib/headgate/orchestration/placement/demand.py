"""What a placed Prefect task asks of the cluster: the runner's defaults, changed for some tasks by a context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from headgate.placement import Amounts, amounts

ONE_CPU: Final = amounts(cpu=1)


@dataclass(frozen=True, slots=True)
class Demand:
    """What each task takes, and how much it matters.

    Attributes:
        resources: what the task takes while it runs.
        priority: higher goes first.
        labels: what preemption rules look at, e.g. `role: train`.
        preemptible: whether it may be stopped for others and run again.
        estimated_duration_s: how long it will run; 0 where nobody knows.
        restart_s: seconds of work that a stop and a new start cost besides what was done since it last saved.
        min_runtime_s: it is not stopped before it ran so long; None takes the rule's.
        checkpoints: whether a task that is run again goes on from what it saved. It has to say so itself: it finds
            its own files again. Without, everything it has done is lost work when victims are chosen.
    """

    resources: Amounts = ONE_CPU
    priority: float = 5.0
    labels: Mapping[str, str] = field(default_factory=dict)
    preemptible: bool = True
    estimated_duration_s: float = 0.0
    restart_s: float = 0.0
    min_runtime_s: float | None = None
    checkpoints: bool = False

    def as_arguments(self) -> dict[str, Any]:
        """Return it as arguments of `PlacementPool.lease`."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"labels": dict(self.labels)}


_CHANGES: Final[ContextVar[Mapping[str, Any]]] = ContextVar("headgate_placement_changes")


@contextmanager
def placed(
    *,
    resources: Amounts | None = None,
    priority: float | None = None,
    labels: Mapping[str, str] | None = None,
    preemptible: bool | None = None,
    estimated_duration_s: float | None = None,
    restart_s: float | None = None,
    min_runtime_s: float | None = None,
    checkpoints: bool | None = None,
) -> Iterator[None]:
    """Submit tasks with another demand than the runner's own; what is not given stays, also in nested contexts.

    Examples:
        ```python
        with placed(priority=9, labels={"role": "train"}, resources=amounts(cpu=2)):
            future = train.submit(dataset)
        ```
    """
    # The parameters: nothing else has a name yet.
    changes = {name: value for name, value in locals().items() if value is not None}
    token = _CHANGES.set({**_CHANGES.get({}), **changes})
    try:
        yield
    finally:
        _CHANGES.reset(token)


def demand_now(defaults: Demand) -> Demand:
    """Return what a task that is submitted here and now asks for."""
    return replace(defaults, **_CHANGES.get({}))
