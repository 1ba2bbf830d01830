"""A task as ScheduleMesh's users write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class SimpleTaskSpec:
    """An actor that is wanted.

    Attributes:
        task_id: 1 to 100 letters, digits, `.`, `_` and `-`.
        pool: the pool whose quota it counts against.
        actor_class: a class, plain or with `@ray.remote`; made with the agent's name, its labels and the `actor_*`.
        resources: `cpu`, `memory` in MB, `gpu`, and named ones under `custom` or beside them.
        priority: higher goes first; from 8 it may use reserved groups by right.
        labels: what rules of preemption look at.
        actor_args: of the constructor, after name and labels.
        actor_kwargs: of the constructor.
        agent_name: a name for the agent; None for a new one.
        ray_options: of the actor, e.g. `name`.
        estimated_duration: seconds that it will run; 0 where nobody knows.
        auto_register: whether it may be stopped for others.
    """

    task_id: str
    pool: str
    actor_class: Any
    resources: Mapping[str, Any]
    priority: float = 5.0
    labels: Mapping[str, str] | None = None
    actor_args: Sequence[Any] | None = None
    actor_kwargs: Mapping[str, Any] | None = None
    agent_name: str | None = None
    ray_options: Mapping[str, Any] | None = None
    estimated_duration: float = 0.0
    auto_register: bool = True

    def to_submission_kwargs(self) -> dict[str, Any]:
        """Return what `RayScheduler.submit_task_with_preemption` takes, without what is not given."""
        given = {
            "task_id": self.task_id,
            "pool_name": self.pool,
            "resources": dict(self.resources),
            "priority": self.priority,
            "labels": dict(self.labels or {}),
            "actor_class": self.actor_class,
        }
        more = {
            "actor_args": self.actor_args,
            "actor_kwargs": self.actor_kwargs,
            "agent_name": self.agent_name,
            "ray_options": self.ray_options,
        }
        return given | {name: value for name, value in more.items() if value is not None}
