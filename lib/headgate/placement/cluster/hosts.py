"""The hosts of the groups, seen from the ledger's process, and the work in them."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate.placement.cluster.connection import NAMESPACE
from headgate.placement.cluster.groups import PREFIX, Groups, RayGroup
from headgate.placement.cluster.host import GRACE_S, HostActor, Left
from headgate.placement.cluster.occupant import Halted
from headgate.placement.service.protocol import GroupFailedError, Outcome, Stopped, WorkOrder

HOST_PREFIX: Final = f"{PREFIX}host-"

UP_S: Final = 60.0
"""How long a process may take to start: 1.1 s on two busy cores, more when a node loads images."""

STARTING_S: Final = 10.0
"""How long to wait for a host that is still starting before it is killed anyway."""

DEAD_S: Final = 5.0
"""How long a killed process may take to be seen dead; 2 to 13 ms measured, up to 50 ms under load."""

_UNAVAILABLE_S: Final = 0.1

_FREE_S: Final = 0.1
"""How long a free group stays without hosts: a lease or an actor may take it at once, and needs none."""


class Watched:
    """An actor whose death is noticed as soon as Ray knows it, by a call that stays pending while it lives."""

    def __init__(self, actor: Any, watch: Any) -> None:
        self.actor = actor
        self.died: asyncio.Task[str] = asyncio.ensure_future(_death(watch))

    def end(self) -> None:
        """Ask Ray to kill it, without waiting."""
        with suppress(RayError, ValueError):
            ray.kill(self.actor, no_restart=True)

    async def kill(self) -> bool:
        """Kill it, and tell whether it was seen dead in time."""
        self.end()
        await asyncio.wait([self.died], timeout=DEAD_S)
        return self.died.done()


class HostHandle(Watched):
    """One host. Owned by `Hosts`."""

    def __init__(self, actor: Any, group_id: str, bundle: int) -> None:
        super().__init__(actor, actor.watch)
        self.group_id = group_id
        self.bundle = bundle
        self.up: asyncio.Task[int] = asyncio.ensure_future(_up(actor))
        # A host may be killed while it starts, when nothing awaits this task: its error is retrieved here.
        self.up.add_done_callback(lambda up: up.cancelled() or up.exception())

    async def kill(self) -> bool:
        """Kill it once it is up: Ray may leak the resources of an actor that is killed while it is being created."""
        await asyncio.wait([self.up, self.died], timeout=STARTING_S, return_when=asyncio.FIRST_COMPLETED)
        return await super().kill()


class Hosts:
    """Keeps one host per bundle. Owned by the executor, one per process."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._hosts: dict[tuple[str, int], HostHandle] = {}
        self._free: set[str] = set()

    def warm(self, group: RayGroup) -> list[HostHandle]:
        """Return the host of each bundle; missing ones are started, without waiting for them."""
        return [self._warmed(group, bundle) for bundle in range(len(group.bundles))]

    def warm_soon(self, group: RayGroup) -> None:
        """Start the hosts of a free group soon, unless a lease or an actor, which needs none, takes the group first."""
        self._free.add(group.group_id)

        def warm() -> None:
            if group.group_id in self._free and self._groups.stands(group.group_id):
                self.warm(group)

        asyncio.get_running_loop().call_later(_FREE_S, warm)

    async def ready(self, group: RayGroup) -> list[HostHandle]:
        """Return the host of each bundle, all of them up; raises GroupFailedError if one does not start."""
        known = [self._hosts.get((group.group_id, bundle)) for bundle in range(len(group.bundles))]
        hosts = [host for host in known if host is not None and not host.died.done()]
        if len(hosts) < len(group.bundles):  # their group is gone, or one was just killed
            self._check_stands(group.group_id)
            hosts = self.warm(group)
        done, _ = await asyncio.wait([host.up for host in hosts], timeout=UP_S)
        if len(done) < len(hosts):
            raise GroupFailedError(f"A host of group {group.group_id} was not up after {UP_S:g} s")
        for host in hosts:
            error = host.up.exception()
            if error is not None:
                self._forget(host)
                raise GroupFailedError(f"A host of group {group.group_id} did not start: {first_line(error)}")
        return hosts

    async def retire(self, host: HostHandle) -> bool:
        """Kill a host and start another in its place; tell whether it was seen dead."""
        is_dead = await host.kill()
        self._forget(host)
        group = self._groups.get(host.group_id)
        if is_dead and group is not None and self._groups.stands(host.group_id):
            self._warmed(group, host.bundle)
        return is_dead

    async def emptied(self, group_id: str) -> None:
        """Kill the hosts of a group, so that its bundles are free for others.

        Raises:
            GroupFailedError: the group is gone, or a host was not seen dead.
        """
        self._check_stands(group_id)
        self._free.discard(group_id)
        hosts = [host for (of, _), host in self._hosts.items() if of == group_id]
        deaths = await asyncio.gather(*(host.kill() for host in hosts))
        self.drop(group_id)
        if not all(deaths):
            raise GroupFailedError(f"A host of group {group_id} was not seen dead in {DEAD_S:g} s")

    def drop(self, group_id: str) -> None:
        """Forget the hosts of a group that is gone; Ray has killed them with it, except those still being created."""
        self._free.discard(group_id)
        for host in [host for (of, _), host in self._hosts.items() if of == group_id]:
            if not host.up.done():
                host.end()
            self._forget(host)

    def found(self) -> list[HostHandle]:
        """Return the hosts that are alive in the cluster, including those of an earlier ledger, and take them over."""
        for row in ray.util.list_named_actors(all_namespaces=True):
            name = row["name"]
            if row["namespace"] != NAMESPACE or not name.startswith(HOST_PREFIX):
                continue
            group_id, number, _ = name.removeprefix(HOST_PREFIX).rsplit("-", 2)
            bundle = int(number)
            if (group_id, bundle) not in self._hosts:
                with suppress(ValueError):  # it has died meanwhile
                    actor = ray.get_actor(name, namespace=NAMESPACE)
                    self._hosts[group_id, bundle] = HostHandle(actor, group_id, bundle)
        return list(self._hosts.values())

    def _check_stands(self, group_id: str) -> None:
        if not self._groups.stands(group_id):
            self._groups.forget(group_id)
            self.drop(group_id)
            raise GroupFailedError(f"Group {group_id} has vanished from Ray or lost a node")

    def _warmed(self, group: RayGroup, bundle: int) -> HostHandle:
        host = self._hosts.get((group.group_id, bundle))
        if host is not None and not host.died.done():
            return host
        name = f"{HOST_PREFIX}{group.group_id}-{bundle}-{secrets.token_hex(4)}"
        actor = HostActor.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=1000,
            **group.bundles[bundle].as_options(),
            scheduling_strategy=in_bundle(group, bundle),
        ).remote()
        host = self._hosts[group.group_id, bundle] = HostHandle(actor, group.group_id, bundle)
        return host

    def _forget(self, host: HostHandle) -> None:
        if self._hosts.get((host.group_id, host.bundle)) is host:
            del self._hosts[host.group_id, host.bundle]


def in_bundle(group: RayGroup, bundle: int) -> PlacementGroupSchedulingStrategy:
    """Return the scheduling strategy that places an actor in one bundle of a group."""
    return PlacementGroupSchedulingStrategy(group.handle, placement_group_bundle_index=bundle)


def first_line(error: BaseException) -> str:
    """Return the message of an error of Ray, on one line and of bounded length."""
    said, _, _ = " ".join(str(error).split()).partition(" Some common causes")  # what follows is guesswork of Ray
    return f"{type(error).__name__}: {said}"[:500]


async def _death(watch: Any) -> str:
    while True:
        try:
            await watch.remote()
        except ActorUnavailableError:  # the network, not the process
            await asyncio.sleep(_UNAVAILABLE_S)
        except RayError as error:
            return first_line(error)


async def _up(actor: Any) -> int:
    process_id: int = await actor.process_id.remote()
    return process_id


_ANSWER_S: Final = 0.05
"""How long after its timeout the answer of a host may arrive before the host counts as stuck."""


class HostedWork:
    """One request's work in hosts. Owned by the executor from its start until it is seen gone."""

    def __init__(self, hosts: Hosts, group: RayGroup, work: WorkOrder) -> None:
        self._hosts, self._group, self._work = hosts, group, work
        self._members: list[HostHandle] = []
        self._lives: list[asyncio.Task[Left]] = []
        self._is_stopping = False
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all members; if one cannot be started, raises GroupFailedError and none runs."""
        for _ in range(2):  # an idle host may have died unnoticed; the second attempt gets a new one
            self._members = await self._hosts.ready(self._group)
            begun = await asyncio.gather(*(self._begin(rank) for rank in range(len(self._members))))
            if not (whys := [why for why in begun if why]):
                self.resume(self._members)
                return
            await asyncio.gather(*(self._hosts.retire(member) for member in self._members))
        raise GroupFailedError(f"The work ends its process in group {self._group.group_id} as it begins: {whys[0]}")

    def resume(self, members: list[HostHandle]) -> None:
        """Watch members that are already running."""
        self._members = members
        self._lives = [asyncio.ensure_future(self._life(member)) for member in members]
        self._watch = asyncio.ensure_future(self._watched())

    def reach(self) -> tuple[Any, ...]:
        """Return the host actor of each member; its `call` takes the epoch of this start."""
        return tuple(member.actor for member in self._members)

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

    async def _begin(self, rank: int) -> str:
        """Start a member, and return why it could not start; empty if it has."""
        order = self._work
        if order.state is not None and len(order.bundles) > 1:
            order = replace(order, state=cloudpickle.loads(order.state)[rank])
        try:
            return "" if await self._members[rank].actor.begin.remote(order, rank) else "its host has other work"
        except RayError as error:
            return first_line(error)

    async def _life(self, member: HostHandle) -> Left:
        """Wait until one member ends, and return how."""
        while True:
            try:
                left: Left = await member.actor.outcome.remote(self._work.epoch)
            except ActorUnavailableError:
                await asyncio.sleep(_ANSWER_S)
            except RayError as error:
                is_dead = member.died.done() or await member.kill()
                why = await member.died if is_dead else f"not seen dead: {first_line(error)}"
                return Left(Outcome("died", why=why), "a dead process")
            else:
                return left

    async def _watched(self) -> None:
        """Wait for all members, or for the first that fails; then make sure that none is left."""
        waiting = set(self._lives)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(life.result().outcome.kind != "returned" for life in done):
                break
        if self._is_stopping:
            return
        ended = [life.result().outcome for life in self._lives if life.done()]
        ended.sort(key=lambda outcome: outcome.kind != "died")
        outcome = next((each for each in ended if each.kind != "returned"), None)
        if outcome is None:
            payloads = tuple(each.payload for each in ended)
            outcome = Outcome("returned", payloads[0] if len(payloads) == 1 else cloudpickle.dumps(payloads))
        await asyncio.gather(
            *(self._emptied(member, life) for member, life in zip(self._members, self._lives, strict=True))
        )
        if not self._is_stopping:
            self.outcome.set_result(outcome)

    async def _emptied(self, member: HostHandle, life: asyncio.Task[Left]) -> bool:
        """Leave a member's host empty, or dead if it cannot be reused."""
        return (life.done() and not life.result().remains) or await self._hosts.retire(member)

    async def _halted(self, member: HostHandle, timeout_s: float) -> Halted:
        asked = member.actor.stop.remote(self._work.epoch, timeout_s)
        try:
            halted: Halted = await asyncio.wait_for(asked, timeout_s + _ANSWER_S)
        except (TimeoutError, RayError):
            return Halted(why="It does not answer")
        return halted

    async def _gone(self, member: HostHandle, life: asyncio.Task[Left], halted: Halted) -> bool:
        if halted.has_ended:
            await asyncio.wait([life], timeout=GRACE_S + _ANSWER_S)
        return await self._emptied(member, life)
