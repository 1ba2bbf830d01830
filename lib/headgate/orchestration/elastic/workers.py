"""Elastic workers in places of a Ray cluster: their engines and leases, from what a pool's file says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.elastic import ElasticConfig, InvalidElasticError
from headgate.elastic.engines import Engine
from headgate.orchestration.elastic.actors import PlacedActorEngine, engine_class, has_async_methods
from headgate.orchestration.elastic.forms import ActorEngines, WorkerPlacement, checked_actors, checked_placement
from headgate.orchestration.elastic.leases import PlacedLeases
from headgate.orchestration.elastic.place import ActorOrder
from headgate.orchestration.placement.demand import Demand
from headgate.placement import Placement, PlacementPool, connect

_BESIDE: Final = 8
"""Calls that a class without `async` methods answers beside its requests: readings, aborts."""

_USUAL_SLOTS: Final = 8

# Whoever serves the pool takes signals; that Ray does not, since it is started in a thread, is as it should be.
logging.getLogger("ray._private.worker").addFilter(lambda record: "handler is not set" not in record.getMessage())


@dataclass(frozen=True, slots=True)
class PlacedEngines:
    """Engines that are actors, and the leases of all workers of their pool.

    Attributes:
        engines: in the order of the file; engines that have an address are opened as ever.
        leases: for `ElasticService`.
        says: which cluster and pool are used, in a sentence.
    """

    engines: tuple[Engine, ...]
    leases: PlacedLeases
    says: str


@asynccontextmanager
async def placed_engines(
    config: ElasticConfig, placement: Mapping[str, Any], engines: Sequence[Mapping[str, Any] | ActorEngines] = ()
) -> AsyncIterator[PlacedEngines]:
    """Connect to a cluster and give the engines that are actors there, with leases for all workers of a pool.

    Everything is given back at the end. Leave the service before: it uses them.

    Args:
        config: of the pool.
        placement: the section of that name in the pool's file; see `WorkerPlacement`.
        engines: the entries of kind `ray` that name a class, or what they became; see `ActorEngines`.

    Raises:
        InvalidElasticError: something that was written breaks a rule, or a worker could never have a place.
        ClusterUnreachableError: no cluster answers.

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
        demands = {name: wanted.demand(spec.resources) for name, (spec, _) in actors.items()}
        await asyncio.to_thread(_check_fit, connection, pool, demands.values() or [demand])
        leases = PlacedLeases(connection, pool, demand, actors=demands)
        exits.push_async_callback(leases.close)
        yield PlacedEngines(
            tuple(
                PlacedActorEngine(name, order, leases, config, models=spec.models, slots=spec.slots)
                for name, (spec, order) in actors.items()
            ),
            leases,
            f"{connection.says}, pool {pool.name} with {pool.pool.quota}",
        )


def _orders(
    wanted: WorkerPlacement, specs: Sequence[ActorEngines], config: ElasticConfig
) -> dict[str, tuple[ActorEngines, ActorOrder]]:
    """Return worker -> how it is started; the workers of a class are numbered from 1."""
    orders: dict[str, tuple[ActorEngines, ActorOrder]] = {}
    numbers: dict[str, int] = {}
    for spec in specs:
        wanted.demand(spec.resources)
        actor_class = engine_class(spec.class_name)
        options = dict(spec.options)
        if not has_async_methods(actor_class):
            slots = spec.slots or config.requests_per_worker_capacity or _USUAL_SLOTS
            options.setdefault("max_concurrency", slots + _BESIDE)
        for _ in range(spec.count):
            name = spec.worker or actor_class.__name__
            number = numbers[name] = numbers.get(name, 0) + 1
            orders[f"{name}-{number}"] = (spec, ActorOrder(actor_class, spec.arguments, options))
    return orders


def _check_fit(connection: Placement, pool: PlacementPool, demands: Iterable[Demand]) -> None:
    """Refuse workers that would stand in line for ever. A cluster without nodes is one that is not seen yet."""
    nodes = connection.nodes()
    for demand in demands:
        asked = demand.resources
        if not asked.fits(pool.pool.quota):
            raise InvalidElasticError(
                f"a worker takes {asked}, more than the quota of pool {pool.name}: {pool.pool.quota}",
                next_step="Request less, or raise the pool's quota.",
            )
        if nodes and not any(asked.fits(node.total) for node in nodes):
            raise InvalidElasticError(
                f"a worker takes {asked}, more than any node of the cluster has",
                next_step="Ask for less, or add a node: `headgate placement status` shows what each has.",
            )
