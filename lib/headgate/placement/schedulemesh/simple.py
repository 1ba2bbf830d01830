"""ScheduleMesh's simple scheduler: pools, tasks, preemption, statistics, in one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.placement.schedulemesh.agent import Preserver, Restorer, SimpleTaskSpec
from headgate.placement.schedulemesh.config.policy import PreemptionAggressiveness
from headgate.placement.schedulemesh.ray_scheduler import WAIT_S, RayScheduler

__all__ = ["PreemptionAggressiveness", "SimpleScheduler", "SimpleTaskSpec"]


class SimpleScheduler:
    """Places actors by priority in pools of placement groups. Used from one thread.

    Every answer is a mapping with `success`, and where that is False `error` and `reason`; see `RayScheduler` for the
    few exceptions. A submission waits until its actor runs, for `wait_s` at most; then it is withdrawn. What was
    stopped for something else runs again by itself: `submit` with the same task waits for that.
    """

    def __init__(
        self, name: str = "schedulemesh-simple", *, scheduler: RayScheduler | None = None, wait_s: float = WAIT_S
    ) -> None:
        """Connect as `RayScheduler` does, or stand on one that is there: it ends with this one and waits as it does."""
        self._scheduler = scheduler or RayScheduler(name, wait_s=wait_s)

    @property
    def scheduler(self) -> RayScheduler:
        """The scheduler below; its `placement` is Headgate's own connection."""
        return self._scheduler

    def ensure_pool(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        target_agents: int = 0,
        placement_strategy: str = "STRICT_PACK",
        pg_pool_config: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Open a pool, or return it where it is open in this form; see `RayScheduler.create_pool`."""
        return self._scheduler.create_pool(
            name,
            labels,
            resources,
            target_agents=target_agents,
            placement_strategy=placement_strategy,
            pg_pool_config=pg_pool_config,
        )

    def submit(self, **task: Any) -> dict[str, Any]:
        """Have a task run, given by the fields of `SimpleTaskSpec`; see `submit_spec`."""
        return self.submit_spec(SimpleTaskSpec(**task))

    def submit_spec(self, spec: SimpleTaskSpec) -> dict[str, Any]:
        """Have a task run; its actor's handle is `result["agent"]["handle"]`."""
        return self._scheduler.submit_spec(spec)

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
        """Have a task run whose agent is named as the task, in the same way as `submit`, which preempts as well.

        `more` are other fields of `SimpleTaskSpec`.
        """
        spec = SimpleTaskSpec(task_id, pool, actor_class, resources, priority, labels, agent_name=task_id, **more)
        return self._scheduler.submit_spec(spec)

    def complete(self, task_id: str) -> dict[str, Any]:
        """Take back what a task holds: its actor ends, and its group is free."""
        return self._scheduler.unregister_task(task_id)

    def delete_agent(self, name: str, *, force: bool = False, destroy_pg: bool = True) -> dict[str, Any]:
        """End an agent, given by its name or its task; see `RayScheduler.delete_agent`."""
        return self._scheduler.delete_agent(name, force=force, destroy_pg=destroy_pg)

    def configure_preemption(self, **settings: Any) -> dict[str, Any]:
        """Change rules of preemption; see `RayScheduler.update_preemption_policy`.

        Raises:
            InvalidPlacementError: a setting is unknown or impossible, or label rules have a cycle.
        """
        return self._scheduler.update_preemption_policy(**settings)

    def register_state_handlers(
        self, pool_name: str, preserver: Preserver | None, restorer: Restorer | None
    ) -> dict[str, Any]:
        """Save and restore the state of a pool's workers; see `RayScheduler.register_state_handlers`."""
        return self._scheduler.register_state_handlers(pool_name, preserver, restorer)

    def stats(self) -> dict[str, Any]:
        """Return counts of preemption since this scheduler was made."""
        return self._scheduler.get_preemption_stats()

    def list_agents(self, pool: str | None = None, *, include_handle: bool = False) -> dict[str, Any]:
        """Return this driver's agents."""
        return self._scheduler.list_agents(pool, include_handle=include_handle)

    def list_pools(self) -> dict[str, Any]:
        """Return the pools that are open here."""
        return self._scheduler.list_pools()

    def pg_pool_stats(self, pool_name: str | None = None) -> dict[str, Any]:
        """Return counts of groups of a pool; of all under `pools`."""
        return self._scheduler.get_pg_pool_stats(pool_name)

    def shutdown(self) -> None:
        """End this driver's work and its pools; nothing of them stays in the cluster."""
        self._scheduler.shutdown()
