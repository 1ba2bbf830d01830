"""Engines of a run's models on a Ray cluster: each gets a place from placement, by priority and labels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from headgate.core import Serving
from headgate.core.errors import some_of
from headgate.elastic import ElasticConfig
from headgate.elastic.service import EnginesAtHand
from headgate.orchestration.elastic.forms import launched_engines
from headgate.orchestration.elastic.workers import placed_engines
from headgate.placement import Placement, WorkView, connect, take_signals_back
from headgate.run import HostCluster

_NAMED: Final = 3
_BEFORE: Final = frozenset({"running", "placing", "clearing"})


class RayHosts:
    """Starts engines on a cluster. Implements `EngineHosts`.

    An engine is an actor with the label `role: rollout` and its model's labels, so that training can preempt it. Create
    one `RayHosts` per run; close it at the end.
    """

    def __init__(self, cluster: HostCluster) -> None:
        """Use `cluster`, whose pool is the default for models that name none."""
        self._cluster = cluster
        self._placement: Placement | None = None
        self._turn = asyncio.Lock()  # held while connecting: a process can be connected to only one Ray cluster

    @asynccontextmanager
    async def engines(self, name: str, serving: Serving, config: ElasticConfig) -> AsyncIterator[EnginesAtHand]:
        """Yield the engines of a model, each an actor in its place.

        Raises:
            InvalidElasticError: if an engine takes more than any node has, or more than the pool's quota.
            ClusterUnreachableError: if no cluster answers.
        """
        launch = serving.launch
        resources = {"gpu": launch.gpus} if launch.gpus else {"cpu": 1}
        engine = launched_engines(launch, resources, serving.most, worker=name)
        pool = serving.pool or self._cluster.pool
        quota = dict(self._cluster.quota) or None if pool == self._cluster.pool else None
        place = {"pool": pool, "quota": quota, "priority": serving.priority, "labels": dict(serving.labels)}
        try:
            placement = await self._connected()
            async with placed_engines(config, place, [engine]) as placed:
                workers = [each.name for each in placed.engines]
                yield EnginesAtHand(
                    placed.engines,
                    placed.leases,
                    lambda: _ahead(placement, pool, workers),
                    lambda: _others_wait(placement, pool, workers, serving.priority),
                    asyncio.shield(asyncio.wrap_future(placement.lost)),  # cancelling it must not affect other pools
                )
        finally:
            take_signals_back()  # Ray's core resets the handlers when it ends, as when its head was away for long

    async def _connected(self) -> Placement:
        """Return the connection; make a new one if Ray has given up the old one, or its cluster is gone."""
        async with self._turn:
            if self._placement is None or not self._placement.is_connected:
                await self.close()
                address, journal = self._cluster.address or None, self._cluster.journal or None
                self._placement = await asyncio.to_thread(connect, address, journal=journal)
                take_signals_back()
            return self._placement

    async def close(self) -> None:
        """Disconnect from the cluster; one that was started here ends. May be called twice."""
        placement, self._placement = self._placement, None
        if placement is not None:
            await asyncio.to_thread(placement.close)
            take_signals_back()


async def _ahead(placement: Placement, pool: str, workers: Sequence[str]) -> str:
    """Return what holds the places of the pool that these workers wait for."""
    requests = await asyncio.to_thread(placement.requests, pool)
    others = [view for view in requests if view.stage in _BEFORE and view.labels.get("worker") not in workers]
    others.sort(key=lambda view: -view.priority)
    return some_of([_name(view) for view in others], _NAMED)


async def _others_wait(placement: Placement, pool: str, workers: Sequence[str], priority: float) -> bool:
    """Return whether others of at least this priority wait in the pool; lower ones would lose the place again."""
    line = [view for view in await asyncio.to_thread(placement.requests, pool) if view.stage == "waiting"]
    return any(view.priority >= priority and view.labels.get("worker") not in workers for view in line)


def _name(view: WorkView) -> str:
    who = view.labels.get("worker") or f"{view.labels.get('role', '')} {view.request_id}".strip()
    return f"{who} (priority {view.priority:g})"
