"""The scheduler below `SimpleScheduler`, under the names of ScheduleMesh's `RayScheduler`."""

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
"""How long a submission waits until its work runs; then it is withdrawn and not successful."""

_COUNTS: Final = ("total_preemptions", "same_pool_preemptions", "cross_pool_preemptions")
_REQUIRED: Final = ("task_id", "pool_name", "resources", "actor_class")
_GONE_S: Final = 30.0
_PAUSE_S: Final = 0.05


class RayScheduler:
    """Pools and agents of one driver, answered in ScheduleMesh's mappings. Used from one thread.

    Every answer is a mapping with `success`, and where that is False `error` and `reason`. Exceptions are
    `ValueError` for a reserved group larger than its pool and an unknown strategy, `InvalidPlacementError` for unknown
    settings of preemption, and what `connect` raises.

    Attributes:
        name: for people.
        placement: the connection that it stands on.
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

        A connection that is given is used instead, and closed by `shutdown`.
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
        if not self.placement.pools():  # nobody else is here whose rules these would be
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
        """Open a pool, scaled down to a quarter at least where the nodes have less.

        Args:
            name: unique in the cluster. A pool that is open in the same form is used; another form is an error.
            labels: told again by `list_pools`.
            resources: of the pool, or of each of `target_agents`.
            target_agents: how many agents the quota is for; 0 for `resources` as the quota.
            placement_strategy: of reserved groups, where `pg_strategy` does not say it.
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
        """Return a pool that is open here."""
        known = self._pools.get(name)
        if known is None:
            return {"success": False, "error": f"Pool '{name}' not found", "reason": "unknown_pool"}
        used = [each for each in self._agents.values() if each.spec.pool == name and self._holds(each)]
        return {"success": True, "pool": known.told(amounts_of(each.spec.resources) for each in used)}

    def list_pools(self) -> dict[str, Any]:
        """Return the pools that are open here."""
        return {"success": True, "pools": [self.get_pool(name)["pool"] for name in self._pools]}

    def get_pg_pool_stats(self, pool_name: str | None = None) -> dict[str, Any]:
        """Return counts of groups of a pool; of all under `pools`."""
        return self.placement.pool_stats(pool_name)

    # Submission

    def submit_task_with_preemption(self, **submission: Any) -> dict[str, Any]:
        """Have an agent run, by preemption where that is needed; see `submit_spec`."""
        if missing := [name for name in _REQUIRED if submission.get(name) is None]:
            error = f"Missing required arguments for submit_task: {', '.join(missing)}"
            return {"success": False, "error": error, "reason": "missing_arguments"}
        return self.submit_spec(SimpleTaskSpec(pool=submission.pop("pool_name"), **submission))

    def submit_task_with_pg_preemption(self, **submission: Any) -> dict[str, Any]:
        """Have an agent run that is named as its task; see `submit_spec`."""
        return self.submit_task_with_preemption(**submission | {"agent_name": submission.get("task_id")})

    def submit_spec(self, spec: SimpleTaskSpec) -> dict[str, Any]:
        """Have an agent run, and return it with its handle.

        A task that is there already is not made twice: this waits until it runs (again), and returns its handle.
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
        """Take back what a task holds: its agent ends, and its group is free."""
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
        """Have an agent run ahead of any task, which is not stopped for others; see `submit_spec`.

        Its name is unique here; without resources it takes what each agent of a pool with `target_agents` takes. All
        else is as in `SimpleTaskSpec`.
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
        """Return this driver's agents that have not ended; one that was preempted has the handle None."""
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
            name: of the agent or its task.
            force: an agent that is not there is no failure.
            destroy_pg: whether a group that was made for it is removed, too, and not kept for the next agent; reserved
                ones stay, which is what they are for.
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
        """Save and restore the state of a pool's agents that are submitted from now on.

        Args:
            pool_name: the pool.
            preserver: called in the agent's process with the worker when it is to stop; returns its state.
            restorer: called there with the new worker and the state.
        """
        if any(each is not None and not callable(each) for each in (preserver, restorer)):
            return {"success": False, "error": "State handlers are functions", "reason": "invalid_placement"}
        self._handlers[pool_name] = (preserver, restorer)
        return {"success": True}

    # Preemption

    def update_preemption_policy(self, /, **settings: Any) -> dict[str, Any]:
        """Change rules of preemption, for the whole cluster.

        Args:
            settings: ScheduleMesh's names, or those of `PreemptionRules`. `remaining_time_weight` and
                `min_preempt_score` are taken and told as `without_effect`.

        Raises:
            InvalidPlacementError: a setting is unknown or impossible, or label rules have a cycle.
        """
        rules = changed_rules(self.placement.rules(), settings)
        protected = protected_pools(settings)
        self._set_rules(rules)
        if protected is not None:
            self._protected = protected  # those that are opened later as well, and no others
            for pool in self.placement.pools():
                if pool.name in self._pools and pool.protected != (pool.name in protected):
                    form = {each.name: getattr(pool, each.name) for each in fields(Pool)}
                    self.placement.pool(**form | {"protected": pool.name in protected, "change": True})
        policy = as_policy(rules, self._protected)
        return {"success": True, "policy": policy, "without_effect": sorted(WITHOUT_EFFECT & settings.keys())}

    def get_preemption_stats(self) -> dict[str, Any]:
        """Return counts of preemption in the cluster since this scheduler was made, and this driver's running tasks."""
        stats = self.placement.stats()
        counts = {name: int(stats[name]) - self._before[name] for name in _COUNTS}
        recent = stats["recent_preemptions"][-counts["total_preemptions"] :] if counts["total_preemptions"] else []
        return counts | {
            "running_tasks": sum(self._holds(agent) for agent in self._agents.values()),
            "recent_preemptions": [self._told_preemption(each) for each in recent],
        }

    def _told_preemption(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record of a preemption under ScheduleMesh's keys; of another driver's work without its agent."""
        agent = next((each for each in self._agents.values() if each.work.request_id == record["task_id"]), None)
        told = {**record, "pool_name": record["pool"], "cancel_success": record.get("answered", False)}
        if agent is None:
            return told
        return told | {"task_id": agent.spec.task_id, "agent_name": agent.name, "priority": agent.spec.priority}

    def shutdown(self) -> None:
        """End this driver's work and the pools it has opened; legal twice.

        The ledger ends, too, if this driver has started it and no other pool is open; otherwise it gets back the rules
        that it had before. After `ray.shutdown`, which leaves nothing to ask, the ledger stops what is left by itself.
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
        """Close these pools, and return when Ray has nothing of them any more."""
        for name in ours:
            self.placement.close_pool(name)
        until = time.monotonic() + _GONE_S
        while ours & self._all_pools() and time.monotonic() < until:
            time.sleep(_PAUSE_S)  # a pool is gone when its groups are, which nobody is woken by
        if self.placement.rules() == self._rules:  # and not those of somebody who came later
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
        """Return an id for the request: the task's own, or where that was used, another that begins so."""
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
    """Return where an agent stands; None when it has ended, and perhaps been forgotten since."""
    with suppress(NotFoundError):
        view = agent.work.view()
        return None if view.stage.has_ended else view
    return None


def _handle_of(agent: Agent) -> Any:
    with suppress(PlacementLostError):
        return actor_of(agent.work)
    return None
