"""An executor on a cluster that exists only in memory; what it holds survives a service, as Ray does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.placement.amounts import Amounts, amounts
from headgate.placement.outbox import CreateGroup
from headgate.placement.pool import NodeView
from headgate.placement.service.protocol import GroupFailedError, Outcome, Running, Stopped, WorkOrder


@dataclass(slots=True)
class FakeCluster:
    """Nodes, groups and processes. Works end when a test says so.

    Attributes:
        nodes: node id -> what it has.
        groups: group id -> nodes.
        works: group id -> order that runs there.
        states: what each request saves when it is asked to stop; None where it saves nothing.
        unkillable: requests that are not seen dead.
        unremovable: groups that cannot be removed.
        log: what the executor was asked for, in order.
    """

    nodes: dict[str, Amounts] = field(default_factory=lambda: {"n1": amounts(cpu=8)})
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    works: dict[str, WorkOrder] = field(default_factory=dict)
    states: dict[str, bytes | None] = field(default_factory=dict)
    unkillable: set[str] = field(default_factory=set)
    unremovable: set[str] = field(default_factory=set)
    failing_creations: int = 0
    log: list[str] = field(default_factory=list)

    def started(self, request_id: str) -> WorkOrder | None:
        """Return the order of a request that runs."""
        return next((order for order in self.works.values() if order.request_id == request_id), None)


class FakeExecutor:
    """Acts in a `FakeCluster`; each act takes some milliseconds of virtual time."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.outcomes: dict[str, asyncio.Future[Outcome]] = {}

    def end(self, request_id: str, payload: bytes = b"", *, kind: Any = "returned", why: str = "") -> None:
        """Let work end by itself."""
        group_id = next(name for name, order in self.cluster.works.items() if order.request_id == request_id)
        del self.cluster.works[group_id]
        self.outcomes.pop(request_id).set_result(Outcome(kind, payload, why))

    async def nodes(self, ours: Mapping[str, Amounts]) -> list[NodeView]:
        del ours
        return [NodeView(node, total) for node, total in self.cluster.nodes.items()]

    async def create_group(self, command: CreateGroup) -> tuple[str, ...]:
        await asyncio.sleep(0.01)
        if self.cluster.failing_creations:
            self.cluster.failing_creations -= 1
            raise GroupFailedError("the room is not free")
        self.cluster.groups[command.group_id] = command.nodes
        self.cluster.log.append(f"create {command.group_id}")
        return command.nodes

    async def remove_group(self, group_id: str) -> None:
        await asyncio.sleep(0.01)
        if group_id in self.cluster.unremovable:
            self.cluster.log.append(f"keep {group_id}")
            raise GroupFailedError(f"Ray has not removed {group_id}")
        self.cluster.groups.pop(group_id, None)
        self.cluster.works.pop(group_id, None)
        self.cluster.log.append(f"remove {group_id}")

    async def start(self, group_id: str, nodes: Sequence[str], work: WorkOrder) -> Running:
        del nodes
        await asyncio.sleep(0.002)
        if group_id not in self.cluster.groups:
            raise GroupFailedError(f"Group {group_id} is not there")
        if not set(self.cluster.groups[group_id]) <= self.cluster.nodes.keys():
            raise GroupFailedError(f"The hosts of group {group_id} do not take work")
        assert group_id not in self.cluster.works, f"{group_id} is taken by {self.cluster.works[group_id].request_id}"
        self.cluster.works[group_id] = work
        self.cluster.log.append(f"start {work.request_id} {work.epoch}")
        return self._running(group_id, work)

    async def stop(self, running: Running, timeout_s: float) -> Stopped:
        del timeout_s
        await asyncio.sleep(0.003)
        if running.request_id in self.cluster.unkillable:
            return Stopped(None, dead=False)
        self.cluster.works.pop(running.group_id, None)
        self.cluster.log.append(f"stop {running.request_id} {running.epoch}")
        return Stopped(self.cluster.states.get(running.request_id), dead=True)

    def reach(self, running: Running) -> tuple[Any, ...]:
        return (running.request_id,)

    async def existing_groups(self) -> Mapping[str, tuple[str, ...]]:
        return dict(self.cluster.groups)

    async def adopt(self, group_id: str, work: WorkOrder) -> Running | None:
        current = self.cluster.works.get(group_id)
        if current is None or (current.request_id, current.epoch) != (work.request_id, work.epoch):
            return None
        self.cluster.log.append(f"adopt {work.request_id} {work.epoch}")
        return self._running(group_id, work)

    def _running(self, group_id: str, work: WorkOrder) -> Running:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.outcomes[work.request_id] = outcome
        return Running(work.request_id, work.epoch, group_id, outcome)
