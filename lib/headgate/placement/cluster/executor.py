"""What the ledger decides, carried out on Ray: groups, hosts, and the work in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray._private import state

from headgate.placement.amounts import NOTHING, Amounts, of_units
from headgate.placement.cluster.connection import NAMESPACE
from headgate.placement.cluster.groups import PREFIX, Groups, Inventory, RayGroup
from headgate.placement.cluster.hosts import HostedWork, Hosts
from headgate.placement.cluster.own_actor import OwnActorWork
from headgate.placement.outbox import CreateGroup
from headgate.placement.pool import NodeView
from headgate.placement.service.protocol import GroupFailedError, Outcome, Running, Stopped, WorkOrder

_LOOK_S: Final = 0.005
_STANDS_S: Final = 0.5


class LeasedWork:
    """One lease. Owned by the executor from its start until its bundles are seen empty."""

    def __init__(self, hosts: Hosts, groups: Groups, group: RayGroup, work: WorkOrder) -> None:
        self._hosts, self._groups, self._group, self._work = hosts, groups, group, work
        self._watch: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Empty the bundles of their hosts; raises GroupFailedError where one stays, or the group is gone."""
        await self._hosts.emptied(self._group.group_id)
        self.resume()

    def resume(self) -> None:
        """Watch the group of a lease that holds already: no process of ours is in it whose death would tell."""
        self._watch = asyncio.ensure_future(self._watched())

    def reach(self) -> tuple[Any, ...]:
        """Return the placement group."""
        return (self._group.handle,)

    async def stop(self, timeout_s: float) -> Stopped:
        """Return when nobody holds anything of the bundles; who still does after the time is killed with the group.

        The group is made anew in its place at once, in about 11 ms on a tuned cluster.
        """
        if self._watch is not None:
            self._watch.cancel()
        until = time.monotonic() + timeout_s
        answered = True
        while not self._is_empty():
            if time.monotonic() >= until:
                answered = False
                if await self._groups.renewed(self._group.group_id):
                    break
                return Stopped(None, dead=self._groups.get(self._group.group_id) is None)
            await asyncio.sleep(_LOOK_S)
        group = self._groups.get(self._group.group_id)
        if group is not None:
            self._hosts.warm_soon(group)
        return Stopped(None, dead=True, answered=answered)

    def _is_empty(self) -> bool:
        """Tell whether the bundles' own resources are free; Ray counts them on each node beside the node's."""
        group_hex = self._group.handle.id.hex()
        free = state.available_resources_per_node()  # type: ignore[no-untyped-call]
        return all(
            free[node].get(f"{name}_group_{index}_{group_hex}", 0) >= units
            for index, (node, bundle) in enumerate(zip(self._group.nodes, self._group.bundles, strict=True))
            if node in free  # else the node has died, and all in it
            for name, units in bundle.as_ray().items()
        )

    async def _watched(self) -> None:
        while self._groups.stands(self._group.group_id):  # noqa: ASYNC110 - Ray tells nobody
            await asyncio.sleep(_STANDS_S)
        self.outcome.set_result(Outcome("died", why="Its placement group is gone or has lost a node"))


_Work = HostedWork | OwnActorWork | LeasedWork


class RayExecutor:
    """Acts in the Ray cluster that this process is connected to. Owned by the service; one per cluster.

    Made inside a running event loop, whose calls of Ray take a millisecond at most: what may take longer is awaited.
    Measured on two busy cores: a start in a warm host 1.6 ms (p95 3.1), in a cold one 1.1 s; a stop of a busy loop that
    lets itself be stopped 14 ms (p95 39); of work that does not, 18 ms more than its time until it is seen dead.
    """

    def __init__(self) -> None:
        self._inventory = Inventory()
        self._groups = Groups()
        self._hosts = Hosts(self._groups)
        self._work: dict[tuple[str, int], _Work] = {}

    async def nodes(self, ours: Mapping[str, Amounts]) -> list[NodeView]:
        """Return the living nodes, with what others than our groups have taken.

        Of `ours` and what Ray has been seen to hold for us the larger counts: groups that the ledger has promised
        are not in Ray yet, and groups that are being removed are not in the ledger any more.
        """
        held = self._groups.taken()
        both = {node: _most(ours.get(node, NOTHING), held.get(node, NOTHING)) for node in {*ours, *held}}
        return self._inventory.nodes(both)

    async def create_group(self, command: CreateGroup) -> tuple[str, ...]:
        """Make a group where the ledger wants it and return its nodes; its hosts come up while it stays free.

        Raises:
            GroupFailedError: the room is not free, or Ray does not make it; nothing of it is left.
        """
        group = await self._groups.create(command.group_id, command.shape, command.nodes)
        self._hosts.warm_soon(group)
        return group.nodes

    async def remove_group(self, group_id: str) -> None:
        """Remove a group with all that runs in it; return when Ray says that it is gone."""
        await self._groups.remove(group_id)
        self._hosts.drop(group_id)

    async def start(self, group_id: str, nodes: Sequence[str], work: WorkOrder) -> Running:
        """Start work; it counts as started when its code begins to run, and how it fails is its outcome.

        Raises:
            GroupFailedError: the group is gone, or its hosts do not come up.
        """
        del nodes  # the group knows
        group = self._groups.get(group_id)
        if group is None:
            raise GroupFailedError(f"Group {group_id} is not in Ray")
        started = self._of_kind(group, work)
        await started.start()
        return self._kept(group_id, work, started)

    async def stop(self, running: Running, timeout_s: float) -> Stopped:
        """Ask work to stop and to save its state, kill it after the time, and return when it is seen dead."""
        work = self._work.get((running.request_id, running.epoch))
        if work is None:
            return Stopped(None, dead=True)
        stopped = await work.stop(timeout_s)
        if stopped.dead:
            self._work.pop((running.request_id, running.epoch), None)
        return stopped

    def reach(self, running: Running) -> tuple[Any, ...]:
        """Return what a driver reaches work by, one per member; nothing when it does not run any more."""
        work = self._work.get((running.request_id, running.epoch))
        return () if work is None else work.reach()

    async def existing_groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return all groups of ours in Ray, those of an earlier ledger too, with their nodes."""
        return {group_id: group.nodes for group_id, group in self._groups.found().items()}

    async def adopt(self, group_id: str, work: WorkOrder) -> Running | None:
        """Take up work again that was started before this process; None when it does not run any more."""
        self._groups.found()
        group = self._groups.get(group_id)
        if group is None or not self._groups.stands(group_id):
            return None
        adopted = self._of_kind(group, work)
        if not await self._resumed(adopted, group, work):
            return None
        return self._kept(group_id, work, adopted)

    async def _resumed(self, adopted: _Work, group: RayGroup, work: WorkOrder) -> bool:
        match adopted:
            case LeasedWork():
                adopted.resume()
            case OwnActorWork():
                options = cloudpickle.loads(work.payload)[4] or {}
                name = options.get("name") or f"{PREFIX}own-{work.request_id}"
                try:
                    adopted.resume(ray.get_actor(name, namespace=options.get("namespace", NAMESPACE)))
                except ValueError:
                    return False
            case HostedWork():
                hosts = {host.bundle: host for host in self._hosts.found() if host.group_id == group.group_id}
                if len(hosts) < len(group.bundles):
                    return False
                for host in hosts.values():
                    occupant = await host.actor.occupant.remote()
                    if occupant != (work.request_id, work.lease_id, work.epoch):
                        return False
                adopted.resume([hosts[rank] for rank in range(len(group.bundles))])
        return True

    def _of_kind(self, group: RayGroup, work: WorkOrder) -> _Work:
        if work.kind == "lease":
            return LeasedWork(self._hosts, self._groups, group, work)
        return (OwnActorWork if work.kind == "own_process" else HostedWork)(self._hosts, group, work)

    def _kept(self, group_id: str, work: WorkOrder, started: _Work) -> Running:
        key = (work.request_id, work.epoch)
        self._work[key] = started
        started.outcome.add_done_callback(lambda _: self._work.pop(key, None))
        return Running(work.request_id, work.epoch, group_id, started.outcome)


def _most(one: Amounts, other: Amounts) -> Amounts:
    return of_units({name: max(one.get(name), other.get(name)) for name in {*one.names(), *other.names()}})
