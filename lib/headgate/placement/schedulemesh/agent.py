"""A task in ScheduleMesh's form, the agent class that runs for it, and the mappings that describe it."""

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
    """An actor to run.

    Attributes:
        task_id: 1 to 100 letters, digits, `.`, `_` and `-`.
        pool: the pool whose quota it counts against.
        actor_class: a class, plain or with `@ray.remote`; called with the agent's name, its labels and the `actor_*`.
        resources: `cpu`, `memory` in MB, `gpu`, and named ones under `custom` or beside them.
        priority: higher goes first; from 8 it is entitled to reserved groups.
        labels: labels that preemption rules compare.
        actor_args: arguments of the constructor, after name and labels.
        actor_kwargs: keyword arguments of the constructor.
        agent_name: a name for the agent; None for a generated one.
        ray_options: options of the actor, e.g. `name`.
        estimated_duration: expected run time in seconds; 0 if unknown.
        auto_register: whether it may be preempted.
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
        """Return the arguments for `RayScheduler.submit_task_with_preemption`, without those that are None."""
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
"""How long to wait until a released agent is seen gone."""

Preserver = Callable[[Any], Any]
Restorer = Callable[[Any, Any], None]

_PLACED_BY_US: Final = frozenset(
    {
        "num_cpus", "num_gpus", "memory", "resources", "lifetime", "max_restarts", "max_task_retries",
        "placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks", "scheduling_strategy",
    }
)  # fmt: skip
"""Actor options that placement itself sets; a user's values for them are ignored."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One actor that a driver has submitted.

    Attributes:
        name: the name passed to the constructor.
        spec: the task as submitted.
        labels: the labels of the spec, plus the pool.
        options: options of the actor.
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
    """Return a user's actor options without those that placement sets; a named actor gets the driver's namespace."""
    kept = {name: value for name, value in (spec.ray_options or {}).items() if name not in _PLACED_BY_US}
    return MappingProxyType({"namespace": namespace, **kept} if "name" in kept else kept)


def agent_class(spec: SimpleTaskSpec, preserver: Preserver | None, restorer: Restorer | None) -> type:
    """Return a subclass that is saved by its pool's handlers, and whose `cancel` gets the task's id.

    The return value of `cancel` counts as state only if nothing else saves one: in ScheduleMesh it is an answer.

    Raises:
        InvalidPlacementError: `actor_class` is not a class.
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
        del request_id  # the ledger's id, which differs from the task's if that was used before
        answer = cancel(self, task_id) if takes_id else cancel(self)
        return answer if keeps_answer else _dropped(answer)

    return told


def _dropped(answer: Any) -> Any:
    """Return None, or for an awaitable a coroutine that awaits it and returns None."""
    if not inspect.isawaitable(answer):
        return None

    async def awaited() -> None:
        await answer

    return awaited()


def running(agent: Agent, wait_s: float) -> dict[str, Any]:
    """Return the result of a submission: the agent with its handle once it runs.

    An agent that does not run within `wait_s` is withdrawn, leaving nothing behind; the answer says what held it up.
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
    """Return the result of a submission that was refused at once."""
    return {"success": False, "error": error.message, "reason": error.code, "next_step": error.next_step}


def ended(work: PlacedWork) -> WorkView:
    """Return the view of work once it is seen gone, or after `ENDING_S` if it is not."""
    with suppress(TimeoutError):
        return work.wait(ENDING_S)
    return work.view()


def _made(work: PlacedWork, until: float) -> Any:
    """Return the actor once its constructor has returned; None if it was preempted before that."""
    try:
        actor = actor_of(work)
    except PlacementLostError:
        # Either preempted meanwhile, and queued again; or it could not be created, which ends it.
        if _stays_away(work):
            raise
        return None
    if is_made(actor, max(0.0, until - time.monotonic())):
        return actor
    if _stays_away(work):
        raise PlacementLostError(f"The constructor of {work.request_id} raised")
    return None


def _stays_away(work: PlacedWork) -> bool:
    """Tell whether work that does not run has ended for good; waits a second, as its stop or end may be in progress."""
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
