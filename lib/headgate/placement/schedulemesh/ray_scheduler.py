"""The scheduler behind `SimpleScheduler`, with the API of ScheduleMesh's `RayScheduler`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final
from uuid import uuid4

from headgate.core.errors import HeadgateError, NotFoundError
from headgate.placement.cluster.client import Placement, connect
from headgate.placement.cluster.work import actor_of, driver_namespace
from headgate.placement.errors import PlacementLostError
from headgate.placement.pool import Pool
from headgate.placement.request import Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.schedulemesh.agent import (
    Agent,
    Preserver,
    Restorer,
    SimpleTaskSpec,
    actor_options,
    agent_class,
    ended,
    refused,
    running,
)
from headgate.placement.schedulemesh.config.policy import (
    SCHEDULEMESH_RULES,
    WITHOUT_EFFECT,
    as_policy,
    changed_rules,
    protected_pools,
)
from headgate.placement.schedulemesh.pools import OpenPool, amounts_of, as_written, pool_fields, times
from headgate.placement.service.protocol import WorkView

WAIT_S: Final = 60.0
"""How long a submission waits until its work runs; after that it is withdrawn and fails."""

_COUNTS: Final = ("total_preemptions", "same_pool_preemptions", "cross_pool_preemptions")
_REQUIRED: Final = ("task_id", "pool_name", "resources", "actor_class")
_GONE_S: Final = 30.0
_PAUSE_S: Final = 0.05


class RayScheduler:
    """Pools and agents of one driver, reported in ScheduleMesh's mappings. Use it from one thread.

    Every answer is a mapping with `success`, and if that is False with `error` and `reason`. The only exceptions are
    `ValueError` for a reserved group larger than its pool or an unknown strategy, `InvalidPlacementError` for unknown
    preemption settings, and what `connect` raises.

    Attributes:
        name: a display name.
        placement: the connection that it uses.
        wait_s: how long a submission waits until its work runs.
    """

    def __init__(
        self,
        name: str = "schedulemesh-supervisor",
        *,
        placement: Placement | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """Connect to the cluster of this process, of RAY_ADDRESS, of this machine, or to a new one with 8 CPUs.

        If `placement` is given, it is used instead; `shutdown` closes it.
        """
        self.name = name
        self.placement = placement or connect()
        self.wait_s = wait_s
        self._pools: dict[str, OpenPool] = {}
        self._protected: frozenset[str] = frozenset()
        self._agents: dict[str, Agent] = {}
        self._handlers: dict[str, tuple[Preserver | None, Restorer | None]] = {}
        before = self.placement.stats()
        self._before = {name: int(before[name]) for name in _COUNTS}
        self._found = self.placement.rules()
        self._rules = self._found
        self._is_ended = False
        if not self.placement.pools():  # rules are cluster-wide: change them only if no other pool depends on them
            self._set_rules(SCHEDULEMESH_RULES)

    # Pools

    def create_pool(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        *,
        target_agents: int = 0,
        placement_strategy: str = "STRICT_PACK",
        pg_pool_config: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Open a pool, scaled down to no less than a quarter if the nodes have less.

        Args:
            name: unique in the cluster. A pool that is already open with the same fields is used; else it is an error.
            labels: labels that `list_pools` reports back.
            resources: resources of the pool, or of each of `target_agents`.
            target_agents: how many agents the quota is for; 0 to use `resources` as the quota.
            placement_strategy: strategy of reserved groups, unless `pg_strategy` is given.
            pg_pool_config: `enable`, `high_priority_pg_specs`, `enable_dynamic_pgs`, `max_dynamic_pgs`,
                `pg_strategy`, `enable_pg_reuse`.

        Raises:
            ValueError: a reserved group is larger than the pool, or the strategy is unknown.
        """
        try:
            each = amounts_of(resources or {})
            quota = times(each, target_agents) if target_agents > 0 else each
            form = pool_fields(pg_pool_config, placement_strategy, quota) | {"protected": name in self._protected}
            before = self._pools.get(name)
            is_ours = before.is_ours if before is not None else name not in self._all_pools()
            pool = self.placement.pool(name, quota=quota, scale=True, **form)
        except HeadgateError as error:
            return refused(error)
        one = each if target_agents > 0 else None
        self._pools[name] = OpenPool(pool, dict(labels or {}), target_agents, placement_strategy, one, is_ours)
        return self.get_pool(name)

    def get_pool(self, name: str) -> dict[str, Any]:
        """Return a pool that this scheduler uses."""
        known = self._pools.get(name)
        if known is None:
            return {"success": False, "error": f"Pool '{name}' not found", "reason": "unknown_pool"}
        used = [each for each in self._agents.values() if each.spec.pool == name and self._holds(each)]
        return {"success": True, "pool": known.told(amounts_of(each.spec.resources) for each in used)}

    def list_pools(self) -> dict[str, Any]:
        """Return the pools that this scheduler uses."""
        return {"success": True, "pools": [self.get_pool(name)["pool"] for name in self._pools]}

    def get_pg_pool_stats(self, pool_name: str | None = None) -> dict[str, Any]:
        """Return group counters of a pool; those of all pools under `pools`."""
        return self.placement.pool_stats(pool_name)

    # Submission

    def submit_task_with_preemption(self, **submission: Any) -> dict[str, Any]:
        """Run an agent, preempting other work if needed; see `submit_spec`."""
        if missing := [name for name in _REQUIRED if submission.get(name) is None]:
            error = f"Missing required arguments for submit_task: {', '.join(missing)}"
            return {"success": False, "error": error, "reason": "missing_arguments"}
        return self.submit_spec(SimpleTaskSpec(pool=submission.pop("pool_name"), **submission))

    def submit_task_with_pg_preemption(self, **submission: Any) -> dict[str, Any]:
        """Run an agent that has the name of its task; see `submit_spec`."""
        return self.submit_task_with_preemption(**submission | {"agent_name": submission.get("task_id")})

    def submit_spec(self, spec: SimpleTaskSpec) -> dict[str, Any]:
        """Run an agent, and return it with its handle.

        An existing task is not created twice: this waits until it runs (again), and returns its handle.
        """
        known = self._agents.get(spec.task_id)
        try:
            if known is None or _view_of(known) is None:
                known = self._agents[spec.task_id] = self._submitted(spec)
            result = running(known, self.wait_s)
        except HeadgateError as error:
            return refused(error)
        if not result["success"]:
            self._agents.pop(spec.task_id, None)
        return result

    def unregister_task(self, task_id: str) -> dict[str, Any]:
        """Release what a task holds: its agent ends, and its group is free."""
        agent = self._agents.get(task_id)
        if agent is None:
            return {"success": False, "error": f"Task '{task_id}' not found", "reason": "unknown_task"}
        return self._given_back(agent)

    # Agents

    def create_agent(
        self,
        name: str,
        pool: str,
        actor_class: Any,
        *,
        resources: Mapping[str, Any] | None = None,
        ray_options: Mapping[str, Any] | None = None,
        actor_args: Sequence[Any] | None = None,
        actor_kwargs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Run an agent ahead of any task; it is not preempted. See `submit_spec`.

        Its name must be unique here; without `resources` it takes what each agent of a pool with `target_agents` takes.
        The other arguments are as in `SimpleTaskSpec`.
        """
        known = self._pools.get(pool)
        if resources is None and known is not None and known.each is not None:
            resources = as_written(known.each)
        if resources is None:
            error = f"Pool '{pool}' does not say what each agent takes, and no resources are given"
            return {"success": False, "error": error, "reason": "missing_arguments"}
        if name in self._agents:
            return {"success": False, "error": f"Agent '{name}' already exists", "reason": "agent_exists"}
        spec = SimpleTaskSpec(name, pool, actor_class, resources, agent_name=name, auto_register=False)
        return self.submit_spec(
            replace(spec, ray_options=ray_options, actor_args=actor_args, actor_kwargs=actor_kwargs)
        )

    def list_agents(self, pool: str | None = None, *, include_handle: bool = False) -> dict[str, Any]:
        """Return this driver's agents that have not ended; the handle of a preempted one is None."""
        told = []
        for agent in self._agents.values():
            view = _view_of(agent)
            if view is not None and pool in {None, agent.spec.pool}:
                handle = _handle_of(agent) if include_handle else None
                told.append(agent.told(view, handle, with_handle=include_handle))
        return {"success": True, "agents": told}

    def delete_agent(self, name: str, *, force: bool = False, destroy_pg: bool = True) -> dict[str, Any]:
        """End an agent and free its group.

        Args:
            name: name of the agent or of its task.
            force: whether to succeed even if there is no such agent.
            destroy_pg: whether to remove the group created for it instead of keeping it for the next agent; reserved
                groups always stay.
        """
        agent = next((each for each in self._agents.values() if name in {each.name, each.spec.task_id}), None)
        if agent is not None:
            view = _view_of(agent)
            if destroy_pg and view is not None:
                self.placement.remove_group(view.group_id)
            return self._given_back(agent)
        if force:
            return {"success": True, "message": f"Agent '{name}' not found (forced)"}
        return {"success": False, "error": f"Agent '{name}' not found", "reason": "unknown_agent"}

    def register_state_handlers(
        self, pool_name: str, preserver: Preserver | None, restorer: Restorer | None
    ) -> dict[str, Any]:
        """Save and restore the state of the agents that are submitted to a pool from now on.

        Args:
            pool_name: the pool.
            preserver: called in the agent's process with the worker when it has to stop; returns its state.
            restorer: called in the new process with the new worker and the state.
        """
        if any(each is not None and not callable(each) for each in (preserver, restorer)):
            return {"success": False, "error": "State handlers are functions", "reason": "invalid_placement"}
        self._handlers[pool_name] = (preserver, restorer)
        return {"success": True}

    # Preemption

    def update_preemption_policy(self, /, **settings: Any) -> dict[str, Any]:
        """Change the preemption rules of the whole cluster.

        Args:
            settings: settings under ScheduleMesh's names, or those of `PreemptionRules`. `remaining_time_weight` and
                `min_preempt_score` are accepted and reported as `without_effect`.

        Raises:
            InvalidPlacementError: a setting is unknown or invalid, or label rules have a cycle.
        """
        rules = changed_rules(self.placement.rules(), settings)
        protected = protected_pools(settings)
        self._set_rules(rules)
        if protected is not None:
            self._protected = protected  # also for pools that are opened later
            for pool in self.placement.pools():
                if pool.name in self._pools and pool.protected != (pool.name in protected):
                    form = {each.name: getattr(pool, each.name) for each in fields(Pool)}
                    self.placement.pool(**form | {"protected": pool.name in protected, "change": True})
        policy = as_policy(rules, self._protected)
        return {"success": True, "policy": policy, "without_effect": sorted(WITHOUT_EFFECT & settings.keys())}

    def get_preemption_stats(self) -> dict[str, Any]:
        """Return the cluster's preemption counters since this scheduler's creation, and this driver's running tasks."""
        stats = self.placement.stats()
        counts = {name: int(stats[name]) - self._before[name] for name in _COUNTS}
        recent = stats["recent_preemptions"][-counts["total_preemptions"] :] if counts["total_preemptions"] else []
        return counts | {
            "running_tasks": sum(self._holds(agent) for agent in self._agents.values()),
            "recent_preemptions": [self._told_preemption(each) for each in recent],
        }

    def _told_preemption(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a preemption under ScheduleMesh's keys; without the agent for another driver's work."""
        agent = next((each for each in self._agents.values() if each.work.request_id == record["task_id"]), None)
        told = {**record, "pool_name": record["pool"], "cancel_success": record.get("answered", False)}
        if agent is None:
            return told
        return told | {"task_id": agent.spec.task_id, "agent_name": agent.name, "priority": agent.spec.priority}

    def shutdown(self) -> None:
        """End this driver's work and the pools it has opened; legal twice.

        The ledger ends, too, if this driver has started it and no other pool is open; otherwise its former rules are
        restored. After `ray.shutdown` the ledger cannot be reached, and stops this driver's work by itself.
        """
        if self._is_ended:
            return
        self._is_ended = True
        try:
            if not self.placement.is_connected:
                return
            ours = frozenset(name for name, pool in self._pools.items() if pool.is_ours)
            if not self.placement.found_ledger and ours >= self._all_pools():
                self.placement.shutdown()
            else:
                self._leave(ours)
        finally:
            self.placement.close()
            self._agents.clear()

    def _leave(self, ours: frozenset[str]) -> None:
        """Close these pools, and return once none of their groups are left in Ray."""
        for name in ours:
            self.placement.close_pool(name)
        until = time.monotonic() + _GONE_S
        while ours & self._all_pools() and time.monotonic() < until:
            time.sleep(_PAUSE_S)  # a pool is gone when its groups are, and nothing signals that
        if self.placement.rules() == self._rules:  # not if another driver has changed them since
            self.placement.set_rules(self._found)

    def _all_pools(self) -> set[str]:
        return {pool.name for pool in self.placement.pools()}

    def _set_rules(self, rules: PreemptionRules) -> None:
        self.placement.set_rules(rules)
        self._rules = rules

    def _submitted(self, spec: SimpleTaskSpec) -> Agent:
        name = spec.agent_name or f"{spec.pool}-agent-{uuid4().hex[:6]}"
        known = self._pools.get(spec.pool)
        pool = known.pool if known is not None else self.placement.pool(spec.pool)
        options = actor_options(spec, driver_namespace())
        labels = {**(spec.labels or {}), "pool": spec.pool}
        work = pool.submit(
            agent_class(spec, *self._handlers.get(spec.pool, (None, None))),
            name,
            labels,
            *(spec.actor_args or ()),
            kwargs=spec.actor_kwargs,
            method=None,
            resources=amounts_of(spec.resources),
            request_id=self._free_id(spec.task_id),
            priority=spec.priority,
            labels=spec.labels,
            own_process=True,
            ray_options=options,
            preemptible=spec.auto_register,
            estimated_duration_s=spec.estimated_duration,
            min_runtime_s=0.0,
        )
        return Agent(name, spec, labels, options, work)

    def _free_id(self, task_id: str) -> str:
        """Return an id for the request: the task's own, or if that was used, one with it as a prefix."""
        used = {view.request_id for view in self.placement.requests()}
        return f"{task_id}.{uuid4().hex[:8]}" if task_id in used else task_id

    def _given_back(self, agent: Agent) -> dict[str, Any]:
        try:
            outcome = agent.work.complete()
            view = ended(agent.work)
        except HeadgateError as error:
            return refused(error)
        self._agents.pop(agent.spec.task_id, None)
        return {"success": True, "outcome": outcome.value, "agent": agent.told(view, with_handle=False)}

    def _holds(self, agent: Agent) -> bool:
        view = _view_of(agent)
        return view is not None and view.stage in {Stage.RUNNING, Stage.STOPPING}


def _view_of(agent: Agent) -> WorkView | None:
    """Return the view of an agent; None if it has ended, even if it was forgotten since."""
    with suppress(NotFoundError):
        view = agent.work.view()
        return None if view.stage.has_ended else view
    return None


def _handle_of(agent: Agent) -> Any:
    with suppress(PlacementLostError):
        return actor_of(agent.work)
    return None
