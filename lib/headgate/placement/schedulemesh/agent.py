"""A task as ScheduleMesh's users write it, its agent in the form that ScheduleMesh calls, and what is told of it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from headgate.core.errors import HeadgateError
from headgate.placement.cluster.work import PlacedWork, actor_of, is_made, plain_class
from headgate.placement.errors import PlacementLostError, WorkFailedError
from headgate.placement.outcomes import Why
from headgate.placement.service.protocol import WorkView


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
        more = ("actor_args", "actor_kwargs", "agent_name", "ray_options")
        return given | {name: value for name in more if (value := getattr(self, name)) is not None}


ENDING_S: Final = 10.0
"""How long what was given back is waited for until it is seen gone."""

Preserver = Callable[[Any], Any]
Restorer = Callable[[Any, Any], None]

_PLACED_BY_US: Final = frozenset(
    {
        "num_cpus", "num_gpus", "memory", "resources", "lifetime", "max_restarts", "max_task_retries",
        "placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks", "scheduling_strategy",
    }
)  # fmt: skip
"""Options of an actor that follow from its place, and are left out where a user gives them."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One actor that a driver has submitted.

    Attributes:
        name: what the constructor gets.
        spec: what was asked for.
        labels: of the spec, with the pool.
        options: of the actor.
        work: the request.
    """

    name: str
    spec: SimpleTaskSpec
    labels: Mapping[str, str]
    options: Mapping[str, Any]
    work: PlacedWork

    def told(self, view: WorkView, handle: Any = None, *, with_handle: bool = True) -> dict[str, Any]:
        """Return ScheduleMesh's mapping of an agent."""
        spec = self.spec
        inner = plain_class(spec.actor_class)
        told = {
            "name": self.name,
            "task_id": spec.task_id,
            "pool": spec.pool,
            "priority": spec.priority,
            "labels": dict(self.labels),
            "resources": dict(spec.resources),
            "actor_class_path": f"{inner.__module__}.{inner.__qualname__}",
            "actor_init_args": list(spec.actor_args or ()),
            "actor_init_kwargs": dict(spec.actor_kwargs or {}),
            "options": dict(self.options),
            "status": view.stage.value,
            "preemptions": view.preemptions,
            "pg_info": {"pg_id": view.group_id},
        }
        return told | {"handle": handle} if with_handle else told


def actor_options(spec: SimpleTaskSpec, namespace: str) -> Mapping[str, Any]:
    """Return a user's options of an actor without what its place decides; its name is found from the driver."""
    kept = {name: value for name, value in (spec.ray_options or {}).items() if name not in _PLACED_BY_US}
    return MappingProxyType({"namespace": namespace, **kept} if "name" in kept else kept)


def agent_class(spec: SimpleTaskSpec, preserver: Preserver | None, restorer: Restorer | None) -> type:
    """Return a subclass that is saved by the handlers of its pool, and whose `cancel` gets the id of the task.

    What `cancel` returns is its state only where nothing else saves one: in ScheduleMesh it is an answer.

    Raises:
        InvalidPlacementError: it is not a class.
    """
    work = plain_class(spec.actor_class)
    members: dict[str, Any] = {name: getattr(work, name) for name in ("__module__", "__doc__", "__qualname__")}
    if preserver is not None:
        members["checkpoint"] = preserver
    if restorer is not None:
        members["restore"] = restorer
    if hasattr(work, "cancel"):
        saves = preserver is not None or hasattr(work, "checkpoint")
        members["cancel"] = _cancel_of(work.cancel, spec.task_id, keeps_answer=not saves)
    return type(work.__name__, (work,), members)


def _cancel_of(cancel: Callable[..., Any], task_id: str, *, keeps_answer: bool) -> Callable[..., Any]:
    takes_id = len(inspect.signature(cancel).parameters) > 1

    def told(self: Any, request_id: str) -> Any:
        del request_id  # of the ledger; it is another one when the task's own was used before
        answer = cancel(self, task_id) if takes_id else cancel(self)
        return answer if keeps_answer else _dropped(answer)

    return told


def _dropped(answer: Any) -> Any:
    """Return None, after the answer has been awaited where it must be."""
    if not inspect.isawaitable(answer):
        return None

    async def awaited() -> None:
        await answer

    return awaited()


def running(agent: Agent, wait_s: float) -> dict[str, Any]:
    """Return the result of a submission: the agent with its handle once it runs.

    What does not run within `wait_s` is withdrawn, with what held it in the answer; nothing stays behind.
    """
    until = time.monotonic() + wait_s
    try:
        while True:
            view = agent.work.wait_running(max(0.0, until - time.monotonic()))
            actor = _made(agent.work, until)
            if actor is not None:
                return {"success": True, "task_id": agent.spec.task_id, "agent": agent.told(view, actor)}
    except TimeoutError:
        return _withdrawn(agent.work, wait_s)
    except PlacementLostError as error:
        return _ended(agent.work, error)


def refused(error: HeadgateError) -> dict[str, Any]:
    """Return the result of what was refused at once."""
    return {"success": False, "error": error.message, "reason": error.code, "next_step": error.next_step}


def ended(work: PlacedWork) -> WorkView:
    """Return where work stands once it is seen gone, or after a while where it is not."""
    with suppress(TimeoutError):
        return work.wait(ENDING_S)
    return work.view()


def _made(work: PlacedWork, until: float) -> Any:
    """Return the actor once its constructor has returned; None where it was taken away before that."""
    try:
        actor = actor_of(work)
    except PlacementLostError:
        # Stopped for something else since, which queues it again; or not made at all, which ends it.
        if _stays_away(work):
            raise
        return None
    if is_made(actor, max(0.0, until - time.monotonic())):
        return actor
    if _stays_away(work):
        raise PlacementLostError(f"The constructor of {work.request_id} raised")
    return None


def _stays_away(work: PlacedWork) -> bool:
    """Tell whether work that is not there has ended; a stop or an end may be under way."""
    with suppress(TimeoutError):
        return work.wait(1.0).stage.has_ended
    return False


def _withdrawn(work: PlacedWork, wait_s: float) -> dict[str, Any]:
    why = work.why()
    work.cancel(f"it did not run within {wait_s:g} s")
    ended(work)
    steps = [rejected.step for rejected in why.rejected]
    return {
        "success": False,
        "error": f"{work.request_id} did not run within {wait_s:g} s and was withdrawn: {why.says}",
        "reason": "preemption_failed" if "preemption" in steps else "not_placed_in_time",
        "why": _told(why),
    }


def _ended(work: PlacedWork, error: PlacementLostError) -> dict[str, Any]:
    told = error.message
    with suppress(PlacementLostError, TimeoutError):
        try:
            work.result(ENDING_S)
        except WorkFailedError as failure:
            told = failure.message
    return {"success": False, "error": told, "reason": "agent_creation_failed"}


def _told(why: Why) -> dict[str, Any]:
    return {
        "stage": why.stage.value,
        "says": why.says,
        "ahead": why.ahead,
        "rejected": [{"step": each.step, "says": each.says} for each in why.rejected],
    }
