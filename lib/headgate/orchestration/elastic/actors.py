"""Engines that are actors in places of placement: one is started when its worker wakes, and ended when it sleeps."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from ray import cloudpickle
from ray.exceptions import ActorDiedError, RayActorError

from headgate.core import Clock, SystemClock
from headgate.elastic import ElasticConfig, EngineError, EngineLoad, InvalidElasticError
from headgate.elastic.engines import EngineAnswer, EngineFacts, Outgoing, RayActorEngine
from headgate.orchestration.elastic.leases import PlacedLeases
from headgate.orchestration.elastic.place import ActorOrder

_METHODS: Final = ("chat", "load", "wake", "abort")
_DEAD_S: Final = 1.0
"""Ray answers for a dead actor at once."""

_INSTALLED: Final = ("site-packages", "dist-packages")


class PlacedActorEngine:
    """An engine that has no process while it sleeps. Implements `Engine`; owned by a pool.

    Its class has the methods of `headgate.elastic.engines.EngineActor`, but for `sleep`: the process is ended instead,
    with all the memory that it holds. `wake` is called once it is made, and returns when it can answer. What
    models it serves, and how many requests it takes, is given: a sleeping engine cannot be asked.
    """

    kind = "ray"

    def __init__(
        self,
        name: str,
        order: ActorOrder,
        leases: PlacedLeases,
        config: ElasticConfig,
        *,
        models: Sequence[str] = (),
        slots: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._order = order
        self._leases = leases
        self._config = config
        self._models = tuple(models)
        self._slots = slots
        self._clock = clock or SystemClock()
        self._handle: Any = None
        self._actor: RayActorEngine | None = None

    @property
    def name(self) -> str:
        """The worker's name."""
        return self._name

    async def check(self) -> EngineFacts:
        """Return what is known of it; its class was looked at when the pool was made."""
        return EngineFacts(self._models, self._slots, is_asleep=self._living() is None)

    async def load(self) -> EngineLoad:
        """Return a reading; asleep where there is no process."""
        if (actor := self._living()) is None:
            return EngineLoad(slots=self._slots, is_asleep=True)
        try:
            load = await actor.load()
        except EngineError:
            if await self._is_dead():
                await self._end()
            raise
        if load.is_asleep:
            await self._end()  # what it had started is gone, and the next start is a new one
        return load

    async def sleep(self) -> None:
        """End the process of an idle engine."""
        if (actor := self._living()) is None:
            return
        load = await actor.load()
        if not load.is_idle:
            raise EngineError(f"the actor {self._name!r} is busy: {load.running} run and {load.waiting} wait")
        await self._end()

    async def wake(self) -> None:
        """Start the actor in the place that the worker holds, and return once it can answer."""
        if self._living() is not None:
            return
        began = self._clock.monotonic()
        self._handle = await self._leases.start(self._name, self._order)
        actor = self._actor = RayActorEngine(self._name, self._handle, self._config)
        try:
            await actor.wake()
        except BaseException:
            await asyncio.shield(self._end())
            raise
        self._leases.started(self._name, self._clock.monotonic() - began)

    async def abort(self, request_id: str) -> None:
        """Have it let go of a request; nothing where there is no process."""
        if (actor := self._living()) is not None:
            await actor.abort(request_id)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request; see `RayActorEngine`."""
        if (actor := self._living()) is None:
            raise EngineError(f"the actor {self._name!r} sleeps")
        async with actor.answer(request) as answer:
            yield answer

    async def close(self) -> None:
        """End the process: nobody could find it again."""
        if self._actor is not None:
            await self._end()

    def _living(self) -> RayActorEngine | None:
        """Return the actor, unless its place was given back, which has ended it."""
        if self._actor is not None and not self._leases.holds(self._name):
            self._actor = self._handle = None
        return self._actor

    async def _end(self) -> None:
        actor, self._actor, self._handle = self._actor, None, None
        if actor is not None:
            await self._leases.end(self._name)
            await actor.close()

    async def _is_dead(self) -> bool:
        """Tell whether Ray knows that the process is gone; one that hangs is not."""
        handle = self._handle
        if handle is None:
            return True
        try:
            async with asyncio.timeout(_DEAD_S):
                await handle.__ray_ready__.remote()
        except ActorDiedError:
            return True
        except (TimeoutError, RayActorError):
            return False
        return False


def engine_class(written: str) -> type:
    """Return the class of `module:Class`, which is found from here; its module need not be there on the nodes.

    Raises:
        InvalidElasticError: there is none, or it lacks a method of an engine.
    """
    module_name, _, class_name = written.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidElasticError(
            f"the class {written!r} of an engine cannot be imported: {error}",
            next_step="Name it as module:Class, from where the module is found.",
        ) from error
    if not module_name.startswith("headgate.") and not any(part in (module.__file__ or "") for part in _INSTALLED):
        # Ray writes classes with a copy of its own of cloudpickle, which only listens to its own register.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return checked_class(found, written)


def checked_class(found: object, written: str) -> type:
    """Return a class, taken out of `@ray.remote` where it is in one.

    Raises:
        InvalidElasticError: it is no class, or lacks a method of an engine.
    """
    metadata = getattr(found, "__ray_metadata__", None)
    plain = getattr(metadata, "modified_class", found)
    plain = getattr(plain, "__ray_actor_class__", plain)
    if not isinstance(plain, type):
        raise InvalidElasticError(f"an engine's class must be a class (got {written!r}, which is {found!r:.80})")
    if missing := [name for name in _METHODS if not callable(getattr(plain, name, None))]:
        raise InvalidElasticError(
            f"the class {written!r} has no method {', '.join(missing)}",
            next_step="Give it the methods of headgate.elastic.engines.EngineActor.",
        )
    return plain


def has_async_methods(actor_class: type) -> bool:
    """Tell whether Ray runs its calls in an event loop; otherwise each takes a thread."""
    return any(
        inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        for method in (inspect.getattr_static(actor_class, name, None) for name in dir(actor_class))
    )
