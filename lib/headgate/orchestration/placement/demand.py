"""What a placed Prefect task requests from the cluster: the runner's defaults, overridden by a context."""

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
    """What each task takes, and how important it is.

    Attributes:
        resources: what the task takes while it runs.
        priority: higher goes first.
        labels: labels for the rules of preemption, e.g. `role: train`.
        preemptible: whether it may be stopped for others and run again.
        estimated_duration_s: how long it is expected to run; 0 if unknown.
        restart_s: work lost by a stop and a new start, in seconds, besides what was done since the last checkpoint.
        min_runtime_s: it is not stopped before it has run this long; None uses the rules' value.
        checkpoints: whether a task that is run again resumes from its checkpoint. The task must find its own files
            again. Otherwise everything that it has done counts as lost work when victims are chosen.
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
        """Return it as keyword arguments of `PlacementPool.lease`."""
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
    """Submit tasks with a demand other than the runner's; arguments not given stay unchanged, also in nested contexts.

    Examples:
        ```python
        with placed(priority=9, labels={"role": "train"}, resources=amounts(cpu=2)):
            future = train.submit(dataset)
        ```
    """
    # At this point, `locals()` has only the parameters.
    changes = {name: value for name, value in locals().items() if value is not None}
    token = _CHANGES.set({**_CHANGES.get({}), **changes})
    try:
        yield
    finally:
        _CHANGES.reset(token)


def demand_now(defaults: Demand) -> Demand:
    """Return the demand of a task that is submitted here and now."""
    return replace(defaults, **_CHANGES.get({}))
