"""ScheduleMesh's simple scheduler: pools, tasks, preemption, statistics, in one object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from headgate.placement.schedulemesh.agent import SimpleTaskSpec
from headgate.placement.schedulemesh.config.policy import PreemptionAggressiveness
from headgate.placement.schedulemesh.ray_scheduler import WAIT_S, RayScheduler

__all__ = ["PreemptionAggressiveness", "SimpleScheduler", "SimpleTaskSpec"]

P = ParamSpec("P")
T = TypeVar("T")


def _below(name: str, method: Callable[Concatenate[RayScheduler, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of `SimpleScheduler` that calls one of `RayScheduler`, with its signature and docstring."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def passed(self: SimpleScheduler, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"SimpleScheduler.{name}() {error}") from None
        return method(self.scheduler, *args, **kwargs)

    passed.__name__, passed.__qualname__ = name, f"SimpleScheduler.{name}"
    return passed


class SimpleScheduler:
    """Places actors by priority in pools of placement groups. Use it from one thread.

    Every answer is a mapping with `success`, and if that is False with `error` and `reason`; see `RayScheduler` for the
    few exceptions. A submission waits until its actor runs, for `wait_s` at most; then it is withdrawn. Preempted
    tasks run again by themselves: `submit` with the same task waits for that.

    Attributes:
        scheduler: the underlying scheduler; its `placement` is Headgate's own connection.
    """

    def __init__(
        self, name: str = "schedulemesh-simple", *, scheduler: RayScheduler | None = None, wait_s: float = WAIT_S
    ) -> None:
        """Connect like `RayScheduler`, or use a given one, with its own `wait_s`; `shutdown` ends it."""
        self.scheduler = scheduler or RayScheduler(name, wait_s=wait_s)

    ensure_pool = _below("ensure_pool", RayScheduler.create_pool)
    submit_spec = _below("submit_spec", RayScheduler.submit_spec)

    def submit(self, **task: Any) -> dict[str, Any]:
        """Run a task, given by the fields of `SimpleTaskSpec`; see `submit_spec`."""
        return self.submit_spec(SimpleTaskSpec(**task))

    def submit_with_pg_preemption(
        self,
        task_id: str,
        pool: str,
        actor_class: Any,
        resources: Mapping[str, Any],
        priority: float = 5.0,
        labels: Mapping[str, str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Run a task whose agent has the task's name; otherwise the same as `submit`, which preempts, too.

        `more` are other fields of `SimpleTaskSpec`.
        """
        spec = SimpleTaskSpec(task_id, pool, actor_class, resources, priority, labels, agent_name=task_id, **more)
        return self.scheduler.submit_spec(spec)

    complete = _below("complete", RayScheduler.unregister_task)
    delete_agent = _below("delete_agent", RayScheduler.delete_agent)
    configure_preemption = _below("configure_preemption", RayScheduler.update_preemption_policy)
    register_state_handlers = _below("register_state_handlers", RayScheduler.register_state_handlers)
    stats = _below("stats", RayScheduler.get_preemption_stats)
    list_agents = _below("list_agents", RayScheduler.list_agents)
    list_pools = _below("list_pools", RayScheduler.list_pools)
    pg_pool_stats = _below("pg_pool_stats", RayScheduler.get_pg_pool_stats)
    shutdown = _below("shutdown", RayScheduler.shutdown)
