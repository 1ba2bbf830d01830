"""Work in the warm hosts of a group: one member per bundle, which start, end and die together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
from ray.exceptions import ActorUnavailableError, RayError

from headgate.placement.cluster.groups import RayGroup
from headgate.placement.cluster.host import GRACE_S, Left
from headgate.placement.cluster.hosts import HostHandle, Hosts, first_line
from headgate.placement.cluster.working import Halted, Order
from headgate.placement.service.hands import GroupFailedError, Outcome, Stopped, WorkOrder

_ANSWER_S: Final = 0.05
"""How much later than its time the answer of a host may come before it counts as stuck."""


class HostedWork:
    """One request's work in hosts. Owned by the hands from its start until it is seen gone."""

    def __init__(self, hosts: Hosts, group: RayGroup, work: WorkOrder) -> None:
        self._hosts, self._group, self._work = hosts, group, work
        self._members: list[HostHandle] = []
        self._lives: list[asyncio.Task[Outcome | Left]] = []
        self._is_stopping = False
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all members.

        Raises:
            GroupFailedError: not all could be; none runs.
        """
        for _ in range(2):  # an idle host may have died unseen: the second time it is a new one
            self._members = await self._hosts.ready(self._group)
            begun = await asyncio.gather(*(self._begin(rank) for rank in range(len(self._members))))
            if all(begun):
                self.resume(self._members)
                return
            await asyncio.gather(*(self._hosts.retire(member) for member in self._members))
        raise GroupFailedError(f"The hosts of group {self._group.group_id} do not take work")

    def resume(self, members: list[HostHandle]) -> None:
        """Watch members that run already."""
        self._members = members
        self._lives = [asyncio.ensure_future(self._life(member)) for member in members]
        self._watch = asyncio.ensure_future(self._watched())

    def reach(self) -> tuple[Any, ...]:
        """Return the host actor of each member; its `call` takes the epoch of this start."""
        return tuple(member.actor for member in self._members)

    async def call(self, rank: int, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of one member's object."""
        return await self._members[rank].actor.call.remote(self._work.epoch, method, args, kwargs)

    async def stop(self, timeout_s: float) -> Stopped:
        """Ask all members to stop, kill those that do not, and return when all are seen gone."""
        self._is_stopping = True
        halts = await asyncio.gather(*(self._halted(member, timeout_s) for member in self._members))
        gone = await asyncio.gather(
            *(
                self._gone(member, life, halted)
                for member, life, halted in zip(self._members, self._lives, halts, strict=True)
            )
        )
        states = tuple(halted.state for halted in halts)
        state = states[0] if len(states) == 1 else cloudpickle.dumps(states) if all(states) else None
        return Stopped(state, all(gone), answered=not any(halted.why for halted in halts))

    async def _begin(self, rank: int) -> bool:
        work = self._work
        state = work.state
        if state is not None and len(work.bundles) > 1:
            state = cloudpickle.loads(state)[rank]
        order = Order(work.request_id, work.lease_id, work.epoch, rank, len(work.bundles), work.payload, state)
        try:
            return bool(await self._members[rank].actor.begin.remote(order))
        except RayError:
            return False

    async def _life(self, member: HostHandle) -> Outcome | Left:
        """Return how one member ended, when it ended by itself."""
        while True:
            try:
                left: Left = await member.actor.outcome.remote(self._work.epoch)
            except ActorUnavailableError:
                await asyncio.sleep(_ANSWER_S)
            except RayError as error:
                if not member.died.done() and not await member.kill():
                    return Outcome("died", why=f"not seen dead: {first_line(error)}")
                return Outcome("died", why=await member.died)
            else:
                return left

    async def _watched(self) -> None:
        """Wait for all members, or for the first that fails; then see to it that none is left."""
        waiting = set(self._lives)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(not _has_returned(life.result()) for life in done):
                break
        if self._is_stopping:
            return
        outcome = self._told()
        await asyncio.gather(
            *(self._emptied(member, life) for member, life in zip(self._members, self._lives, strict=True))
        )
        if not self._is_stopping:
            self.outcome.set_result(outcome)

    def _told(self) -> Outcome:
        ended = [life.result() for life in self._lives if life.done()]
        for each in ended:
            if isinstance(each, Outcome):
                return each
        lefts = [each.ended for each in ended if isinstance(each, Left)]
        for left in lefts:
            if left.kind != "returned":
                return Outcome("raised", left.payload, left.why)
        payloads = tuple(left.payload for left in lefts)
        return Outcome("returned", payloads[0] if len(payloads) == 1 else cloudpickle.dumps(payloads))

    async def _emptied(self, member: HostHandle, life: asyncio.Task[Outcome | Left]) -> bool:
        """Leave a member's host empty, or dead where it cannot be used again."""
        left = life.result() if life.done() else None
        if isinstance(left, Left) and not left.remains:
            return True
        return await self._hosts.retire(member)

    async def _halted(self, member: HostHandle, timeout_s: float) -> Halted:
        asked = member.actor.stop.remote(self._work.epoch, timeout_s)
        try:
            halted: Halted = await asyncio.wait_for(asked, timeout_s + _ANSWER_S)
        except (TimeoutError, RayError):
            return Halted(why="It does not answer")
        return halted

    async def _gone(self, member: HostHandle, life: asyncio.Task[Outcome | Left], halted: Halted) -> bool:
        if halted.has_ended:
            await asyncio.wait([life], timeout=GRACE_S + _ANSWER_S)
        return await self._emptied(member, life)


def _has_returned(ended: Outcome | Left) -> bool:
    return isinstance(ended, Left) and ended.ended.kind == "returned"
