"""A lease: the bundles of a group as they are, for tasks and actors that the holder places there itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from ray._private import state

from headgate.placement.cluster.groups import Groups, RayGroup
from headgate.placement.cluster.hosts import Hosts
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.service.hands import Outcome, Stopped, WorkOrder

_LOOK_S: Final = 0.005
_STANDS_S: Final = 0.5


class LeasedWork:
    """One lease. Owned by the hands from its start until its bundles are seen empty."""

    def __init__(self, hosts: Hosts, groups: Groups, group: RayGroup, work: WorkOrder) -> None:
        self._hosts, self._groups, self._group, self._work = hosts, groups, group, work
        self._watch: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Empty the bundles of their hosts.

        Raises:
            GroupFailedError: a host was not seen dead, or the group is gone.
        """
        await self._hosts.emptied(self._group.group_id)
        self.resume()

    def resume(self) -> None:
        """Watch the group of a lease that holds already: no process of ours is in it whose death would tell."""
        self._watch = asyncio.ensure_future(self._watched())

    def reach(self) -> tuple[Any, ...]:
        """Return the placement group."""
        return (self._group.handle,)

    async def call(self, rank: int, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Refuse: a lease has no object."""
        del rank, args, kwargs
        raise InvalidPlacementError(f"A lease has no method to call (got {method})")

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
            self._hosts.warm(group)
        return Stopped(None, dead=True, answered=answered)

    def _is_empty(self) -> bool:
        """Tell whether the bundles' own resources are free; Ray counts them on each node beside the node's."""
        group_hex = self._group.handle.id.hex()
        free = state.available_resources_per_node()  # type: ignore[no-untyped-call]
        for index, (node, bundle) in enumerate(zip(self._group.nodes, self._group.bundles, strict=True)):
            on_node = free.get(node)
            if on_node is None:  # the node has died, and all in it
                continue
            for name, units in bundle.as_ray().items():
                if on_node.get(f"{name}_group_{index}_{group_hex}", 0) < units:
                    return False
        return True

    async def _watched(self) -> None:
        while self._groups.stands(self._group.group_id):  # noqa: ASYNC110 - Ray tells nobody
            await asyncio.sleep(_STANDS_S)
        self.outcome.set_result(Outcome("died", why="Its placement group is gone or has lost a node"))
