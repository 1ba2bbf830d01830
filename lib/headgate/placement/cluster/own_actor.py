"""Work as its own Ray actor: the user's class under the user's name and options, in one bundle of a group."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.exceptions import RayError

from headgate.placement.cluster.connection import NAMESPACE
from headgate.placement.cluster.groups import PREFIX, RayGroup
from headgate.placement.cluster.hosts import Hosts, Watched, first_line, in_bundle
from headgate.placement.cluster.occupant import awaited, cancelled, has_async, packed, raised
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.service.protocol import Outcome, Stopped, WorkOrder

_CONTROL: Final = "headgate"


class OwnActorWork:
    """One request's work as an actor. Owned by the executor from its start until it is seen dead."""

    def __init__(self, hosts: Hosts, group: RayGroup, work: WorkOrder) -> None:
        self._hosts, self._group, self._work = hosts, group, work
        self._actor: Watched | None = None
        self._is_stopping = False
        self._life: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start the actor in place of the host; an error of the actor becomes its outcome, not a failure of the group.

        Raises:
            GroupFailedError: the group is gone, or its host was not seen dead.
        """
        await self._hosts.emptied(self._group.group_id)
        try:
            self._actor, method = self._made()
        except Exception as error:  # noqa: BLE001 - payload and options are the user's: reported as the outcome
            self._hosts.warm_soon(self._group)
            self.outcome.set_result(raised(error))
            return
        self._life = asyncio.ensure_future(self._lived(self._actor, method))

    def resume(self, actor: Any) -> None:
        """Watch an actor that is already alive; only its end can be seen, not what its method returns."""
        self._actor = watched = Watched(actor, actor._headgate_watch)  # noqa: SLF001 - our own method of it

        async def outlived() -> None:
            await self._told(Outcome("died", why=await watched.died))

        self._life = asyncio.ensure_future(outlived())

    def reach(self) -> tuple[Any, ...]:
        """Return the actor; nothing if it could not be created."""
        return () if self._actor is None else (self._actor.actor,)

    async def stop(self, timeout_s: float) -> Stopped:
        """Ask it to stop, kill it, and return once it is seen dead."""
        self._is_stopping = True
        if self._actor is None:
            return Stopped(None, dead=True)
        asked = self._actor.actor._headgate_stop.remote(self._work.request_id)  # noqa: SLF001
        try:
            state: bytes | None = await asyncio.wait_for(asked, timeout_s)
        except (TimeoutError, RayError):  # stuck, dead, or its `cancel` raised: killed anyway
            return Stopped(None, await self._gone())
        return Stopped(state, await self._gone(), answered=True)

    def _made(self) -> tuple[Watched, str]:
        work, args, kwargs, method, options = cloudpickle.loads(self._work.payload)
        if len(self._group.bundles) > 1:
            raise InvalidPlacementError("Work in a process of its own takes one bundle; a gang runs in hosts")
        chosen = {"name": f"{PREFIX}own-{self._work.request_id}", "namespace": NAMESPACE, **(options or {})}
        groups = {**chosen.pop("concurrency_groups", {}), _CONTROL: 4}
        chosen |= self._group.bundles[0].as_options()
        chosen |= {"lifetime": "detached", "max_restarts": 0, "max_task_retries": 0}
        actor_class: Any = ray.remote(concurrency_groups=groups)(controlled(work))  # type: ignore[call-overload]
        actor = actor_class.options(**chosen, scheduling_strategy=in_bundle(self._group, 0)).remote(*args, **kwargs)
        return Watched(actor, actor._headgate_watch), method or ""  # noqa: SLF001

    async def _lived(self, actor: Watched, method: str) -> None:
        try:
            outcome: Outcome = await actor.actor._headgate_run.remote(method, self._work.state)  # noqa: SLF001
            if not method and outcome.kind == "returned":
                outcome = Outcome("died", why=await actor.died)
        except RayError as error:
            is_its_own = "creation task" in str(error)
            outcome = Outcome("raised" if is_its_own else "died", why=first_line(error))
        await self._told(outcome)

    async def _told(self, outcome: Outcome) -> None:
        if not self._is_stopping:
            await self._gone()
        if not self._is_stopping:
            self.outcome.set_result(outcome)

    async def _gone(self) -> bool:
        is_dead = self._actor is None or await self._actor.kill()
        if is_dead:
            self._hosts.warm_soon(self._group)
        return is_dead


def controlled(work: type) -> type:
    """Return a subclass with the executor's control methods, which run in threads apart from the user's methods."""
    watch, stop, run = (_watch_async, _stop_async, _run_async) if has_async(work) else (_watch, _stop, _run)
    members: dict[str, Any] = {"_headgate_watch": watch, "_headgate_stop": stop, "_headgate_run": run}
    control = ray.method(concurrency_group=_CONTROL)
    for name in ("_headgate_watch", "_headgate_stop"):
        members[name] = control(_copied(members[name]))
    return type(work.__name__, (work,), {"__module__": work.__module__, "__doc__": work.__doc__, **members})


def _copied(function: Any) -> Any:
    """Return a copy of a function, as Ray sets attributes on functions."""
    return type(function)(function.__code__, function.__globals__, function.__name__)


def _watch(self: Any) -> None:  # noqa: ARG001 - becomes a method
    import threading  # noqa: PLC0415 - runs in the worker

    threading.Event().wait()


async def _watch_async(self: Any) -> None:  # noqa: ARG001
    await asyncio.Event().wait()


def _run(self: Any, method: str, state: bytes | None) -> Outcome:
    try:
        _restore(self, state)
        return Outcome("returned", packed(getattr(self, method)() if method else None, "result"))
    except Exception as error:  # noqa: BLE001 - user code: reported with its traceback
        return raised(error)


async def _run_async(self: Any, method: str, state: bytes | None) -> Outcome:
    try:
        _restore(self, state)
        return Outcome("returned", packed(await awaited(getattr(self, method)()) if method else None, "result"))
    except Exception as error:  # noqa: BLE001 - user code: reported with its traceback
        return raised(error)


def _restore(work: Any, state: bytes | None) -> None:
    if state is not None and hasattr(work, "restore"):
        work.restore(pickle.loads(state))  # noqa: S301 - saved by the same work, kept by the ledger


def _stop(self: Any, request_id: str) -> bytes | None:
    state = cancelled(self, request_id) if hasattr(self, "cancel") else None
    if state is None and hasattr(self, "checkpoint"):
        state = self.checkpoint()
    return None if state is None else packed(state, "saved state")


async def _stop_async(self: Any, request_id: str) -> bytes | None:
    state = await awaited(cancelled(self, request_id)) if hasattr(self, "cancel") else None
    if state is None and hasattr(self, "checkpoint"):
        state = await awaited(self.checkpoint())
    return None if state is None else packed(state, "saved state")
