"""Leases of a pool of the placement ledger, for the task runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from blocks import RayCluster
from headgate.core.errors import HeadgateError
from headgate.orchestration.placement.demand import Demand
from headgate.orchestration.placement.tenures import Stop
from headgate.placement import Placement, PlacementLease, PlacementPool, PoolSpec, connect


class PoolLeases:
    """Grants leases of one pool to many threads. Owns its connection to placement."""

    def __init__(self, placement: Placement, pool: PlacementPool) -> None:
        self._placement = placement
        self._pool = pool
        self.says = f"{placement.says}, pool {pool.name} with {pool.pool.quota}"
        """Names the cluster and pool in use."""

    @contextmanager
    def take(self, demand: Demand, *, on_lost: Callable[[], None]) -> Iterator[PlacementLease]:
        """Wait for a place, and hold it, while the context lasts; at the end it is given back exactly once.

        `on_lost` is called from any thread when the place must be left.

        Raises:
            HeadgateError: if the demand can never be met, or placement does not answer.
        """
        lease = self._pool.lease(on_lost=on_lost, **demand.as_arguments())
        try:
            yield lease
        finally:
            # The end of the driver frees it, too: an unreachable ledger must not hide how the task ended.
            with suppress(HeadgateError):
                lease.release()

    def stops(self) -> list[Stop]:
        """Return which work was stopped for which on the cluster, and what it cost, in order of time."""
        told = [each.fields for each in self._placement.events() if each.event == "WorkPreempted"]
        return [Stop(f["request"], f["by"], f["reason"], f["lost_s"], f["took_s"]) for f in told]

    def close(self) -> None:
        """Disconnect from the cluster; may be called twice."""
        self._placement.close()


def pool_leases(address: str | None, pool: str) -> PoolLeases:
    """Return leases of a pool, by its name; a pool that is not open is opened with everything that the cluster has.

    Raises:
        ClusterUnreachableError: if no cluster answers.
    """
    placement = connect(address)
    try:
        return PoolLeases(placement, placement.pool_or_whole(pool))
    except BaseException:
        placement.close()
        raise


def open_pool_leases(block: RayCluster, spec: PoolSpec) -> PoolLeases:
    """Return leases of the pool `spec`, on the cluster of a block.

    The block's pools and rules take effect. If neither the block nor the cluster has the pool, it is made as `spec`
    says, or smaller if the nodes have less.

    Raises:
        ClusterUnreachableError: if no cluster answers.
        InvalidPlacementError: if the block's settings cannot be used.
    """
    placement = connect(block.address or None, journal=block.journal or None)
    try:
        if block.sets_rules:
            placement.set_rules(block.preemption_rules())
        for each in block.pool_specs():
            placement.pool(**each.model_dump(), change=True)
        is_open = any(each.name == spec.name for each in placement.pools())
        pool = placement.pool(spec.name) if is_open else placement.pool(**spec.model_dump(), scale=True)
        return PoolLeases(placement, pool)
    except BaseException:
        placement.close()
        raise
