"""Elastic workers in places on a Ray cluster: their engines and leases, as configured in a pool's file."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from ray import cloudpickle
from ray.exceptions import ActorDiedError, RayActorError

from headgate.elastic import ElasticConfig, EngineError, EngineLoad, InvalidElasticError
from headgate.elastic.engines import Engine, EngineAnswer, EngineFacts, Outgoing, RayActorEngine
from headgate.orchestration.elastic.forms import ActorEngines, WorkerPlacement, checked_actors, checked_placement
from headgate.orchestration.elastic.leases import ActorOrder, PlacedLeases, WorkerPlace
from headgate.orchestration.placement.demand import Demand
from headgate.placement import Placement, PlacementPool, connect

_METHODS: Final = ("chat", "load", "wake", "abort")
_DEAD_S: Final = 1.0
"""Ray reports a dead actor at once."""

_INSTALLED: Final = ("site-packages", "dist-packages")


class PlacedActorEngine(RayActorEngine):
    """An engine that has no process while it sleeps. Owned by a pool.

    Its class has the methods of `headgate.elastic.engines.EngineActor` except `sleep`: instead, the process is ended,
    which frees all its memory. `wake` is called once it has been created, and returns when it can answer. Its models
    and its number of slots are configured: a sleeping engine cannot be asked.
    """

    def __init__(self, name: str, order: ActorOrder, leases: PlacedLeases, config: ElasticConfig) -> None:
        super().__init__(name, None, config)
        self._order = order
        self._leases = leases
        self._place: WorkerPlace | None = None

    async def check(self) -> EngineFacts:
        """Return its models and slots; its class was checked when the pool was made."""
        return EngineFacts(self._order.models, self._order.slots, is_asleep=not self._is_up)

    async def load(self) -> EngineLoad:
        """Return a reading; asleep if there is no process."""
        if not self._is_up:
            return EngineLoad(slots=self._order.slots, is_asleep=True)
        try:
            load = await super().load()
        except EngineError:
            if await self._is_dead():
                await self._end()
            raise
        if load.is_asleep:
            await self._end()  # whatever it had started is gone, so the next start is a fresh one
        return load

    async def sleep(self) -> None:
        """End the process of an idle engine."""
        if not self._is_up:
            return
        load = await super().load()
        if not load.is_idle:
            raise EngineError(f"the actor {self.name!r} is busy: {load.running} run and {load.waiting} wait")
        await self._end()

    async def wake(self) -> None:
        """Start the actor in the place that the worker holds, and return once it can answer."""
        if self._is_up:
            return
        began = time.monotonic()
        self._place = self._leases.place_of(self.name)
        self._handle = await self._leases.start(self.name, self._order)
        try:
            await super().wake()
        except BaseException:
            await asyncio.shield(self._end())
            raise
        self._leases.started(self.name, time.monotonic() - began)

    async def abort(self, request_id: str) -> None:
        """Make it abandon a request; do nothing if there is no process."""
        if self._is_up:
            await super().abort(request_id)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request; see `RayActorEngine`."""
        if not self._is_up:
            raise EngineError(f"the actor {self.name!r} sleeps")
        async with super().answer(request) as answer:
            yield answer

    async def close(self) -> None:
        """End the process: it could not be found again."""
        await self._end()

    @property
    def _is_up(self) -> bool:
        """Whether it has a process, which ends when its place is given back."""
        return self._handle is not None and self._leases.place_of(self.name) is self._place

    async def _end(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            await self._leases.end(self.name)
        await super().close()

    async def _is_dead(self) -> bool:
        """Return whether Ray knows that the process is gone; a process that hangs does not count."""
        if self._handle is None:
            return True
        try:
            async with asyncio.timeout(_DEAD_S):
                await self._handle.__ray_ready__.remote()
        except ActorDiedError:
            return True
        except (TimeoutError, RayActorError):
            return False
        return False


def engine_class(written: str) -> type:
    """Return the class `module:Class`, imported here; its module need not exist on the nodes.

    Raises:
        InvalidElasticError: if there is none, or it lacks a method of an engine.
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
            next_step="Name it as module:Class, importable from the working directory.",
        ) from error
    if not module_name.startswith("headgate.") and not any(part in (module.__file__ or "") for part in _INSTALLED):
        # Ray pickles classes with its own copy of cloudpickle, which consults only its own registry.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return checked_class(found, written)


def checked_class(found: object, written: str) -> type:
    """Return a class, unwrapped from `@ray.remote` if necessary.

    Raises:
        InvalidElasticError: if it is not a class, or lacks a method of an engine.
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


_BESIDE: Final = 8
"""Calls that a class without `async` methods answers at the same time as its requests: readings, aborts."""

_USUAL_SLOTS: Final = 8

# The server of the pool handles signals. Ray is started in a thread, so it does not; its warning about it is expected.
logging.getLogger("ray._private.worker").addFilter(lambda record: "handler is not set" not in record.getMessage())


@dataclass(frozen=True, slots=True)
class PlacedEngines:
    """Engines that are actors, and leases for all workers of their pool.

    Attributes:
        engines: in the order of the file; engines that have an address are opened as usual.
        leases: for `ElasticService`.
        says: names the cluster and pool in use, in a sentence.
    """

    engines: tuple[Engine, ...]
    leases: PlacedLeases
    says: str


@asynccontextmanager
async def placed_engines(
    config: ElasticConfig, placement: Mapping[str, Any], engines: Sequence[Mapping[str, Any] | ActorEngines] = ()
) -> AsyncIterator[PlacedEngines]:
    """Connect to a cluster and yield the engines that are actors there, with leases for all workers of a pool.

    Everything is given back when the context ends. Close the service first: it uses them.

    Args:
        config: the pool's configuration.
        placement: the section `placement` of the pool's file; see `WorkerPlacement`.
        engines: the entries of kind `ray` that name a class, or `ActorEngines` made from them.

    Raises:
        InvalidElasticError: if a setting breaks a rule, or a worker could never get a place.
        ClusterUnreachableError: if no cluster answers.

    Examples:
        ```python
        async with placed_engines(config, {"pool": "rlhf"}, [{"class": "engines:Rollout", "count": 4}]) as placed:
            async with ElasticService("chat", config, placed.engines, leases=placed.leases) as service:
                ...
        ```
    """
    wanted = checked_placement(placement)
    actors = _orders(
        wanted, [each if isinstance(each, ActorEngines) else checked_actors(each) for each in engines], config
    )
    async with AsyncExitStack() as exits:
        connection = await asyncio.to_thread(connect, wanted.address)
        exits.push_async_callback(asyncio.to_thread, connection.close)
        pool = await asyncio.to_thread(connection.pool_or_whole, wanted.pool, wanted.quota, reuse=False)
        demand = wanted.demand(wanted.resources)
        demands = {name: asked for name, (_, asked) in actors.items()}
        await asyncio.to_thread(_check_fit, connection, pool, demands.values() or [demand])
        leases = PlacedLeases(connection, pool, demand, actors=demands)
        exits.push_async_callback(leases.close)
        yield PlacedEngines(
            tuple(PlacedActorEngine(name, order, leases, config) for name, (order, _) in actors.items()),
            leases,
            f"{connection.says}, pool {pool.name} with {pool.pool.quota}",
        )


def _orders(
    wanted: WorkerPlacement, specs: Sequence[ActorEngines], config: ElasticConfig
) -> dict[str, tuple[ActorOrder, Demand]]:
    """Return worker -> how it is started, and its demand; the workers of a class are numbered from 1."""
    orders: dict[str, tuple[ActorOrder, Demand]] = {}
    numbers: dict[str, int] = {}
    for spec in specs:
        demand = wanted.demand(spec.resources)
        actor_class = engine_class(spec.class_name)
        options = dict(spec.options)
        methods = [inspect.getattr_static(actor_class, name, None) for name in dir(actor_class)]
        if not any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in methods):
            # Ray runs its calls without an event loop, and each takes a thread.
            slots = spec.slots or config.requests_per_worker_capacity or _USUAL_SLOTS
            options.setdefault("max_concurrency", slots + _BESIDE)
        order = ActorOrder(actor_class, spec.arguments, options, spec.models, spec.slots)
        for _ in range(spec.count):
            name = spec.worker or actor_class.__name__
            number = numbers[name] = numbers.get(name, 0) + 1
            orders[f"{name}-{number}"] = (order, demand)
    return orders


def _check_fit(connection: Placement, pool: PlacementPool, demands: Iterable[Demand]) -> None:
    """Refuse workers that would wait forever. A cluster without nodes passes: its nodes are not known yet."""
    nodes = connection.nodes()
    for demand in demands:
        asked = demand.resources
        if not asked.fits(pool.pool.quota):
            raise InvalidElasticError(
                f"a worker takes {asked}, more than the quota of pool {pool.name}: {pool.pool.quota}. "
                f"{connection.says}",
                next_step="Request less, raise the pool's quota, or name another cluster by RAY_ADDRESS.",
            )
        if nodes and not any(asked.fits(node.total) for node in nodes):
            raise InvalidElasticError(
                f"a worker takes {asked}, more than any node of the cluster has. {connection.says}",
                next_step="Ask for less, or add a node: `headgate placement status` shows what each has.",
            )
