"""Leases of a pool of the placement ledger, as the task runner takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from blocks import RayCluster
from headgate.core.errors import HeadgateError
from headgate.orchestration.placement.demand import Demand
from headgate.orchestration.placement.tenures import Stop
from headgate.placement import Placement, PlacementLease, PlacementPool, PoolSpec, connect


class PoolLeases:
    """Implements `Leases`. Owns its connection to placement."""

    def __init__(self, placement: Placement, pool: PlacementPool) -> None:
        self.placement = placement
        self._pool = pool

    @property
    def says(self) -> str:
        """Which cluster and pool are used, in a sentence."""
        return f"{self.placement.says}, pool {self._pool.name} with {self._pool.pool.quota}"

    @contextmanager
    def take(self, demand: Demand, name: str, *, on_lost: Callable[[], None]) -> Iterator[PoolLease]:
        """See `Leases`."""
        del name
        lease = self._pool.lease(on_lost=on_lost, **demand.as_arguments())
        try:
            yield PoolLease(self.placement, lease)
        finally:
            # The driver's own end frees it, too: a ledger that is away now must not hide how the task ended.
            with suppress(HeadgateError):
                lease.release()

    def stops(self) -> list[Stop]:
        """Return who was stopped for whom on the cluster, and what it cost, in the order of time."""
        told = [each.fields for each in self.placement.events() if each.event == "WorkPreempted"]
        return [Stop(f["request"], f["by"], f["reason"], f["lost_s"], f["took_s"]) for f in told]

    def close(self) -> None:
        """Leave the cluster; legal twice."""
        self.placement.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PoolLease:
    """Implements `HeldLease` over a lease of the ledger."""

    def __init__(self, placement: Placement, lease: PlacementLease) -> None:
        self._placement = placement
        self._lease = lease
        self.request_id = lease.request_id
        self.place = ""

    @property
    def lease_id(self) -> str:
        """See `HeldLease`."""
        return self._lease.lease_id

    @property
    def is_lost(self) -> bool:
        """See `HeldLease`."""
        return self._lease.is_lost

    @property
    def why_lost(self) -> str:
        """See `HeldLease`."""
        return self._lease.why_lost

    def wait(self, unless: Callable[[], bool]) -> bool:
        """See `HeldLease`."""
        if not self._lease.wait(unless=unless):
            return False
        self.place = self._placement.work(self._lease.request_id).view().group_id or self.place
        return True

    def wake(self) -> None:
        """See `HeldLease`."""
        self._lease.wake()

    def strategy(self) -> Any:
        """See `HeldLease`."""
        return self._lease.strategy()


def pool_leases(address: str | None, pool: str) -> PoolLeases:
    """Return leases of a pool by its name; a pool that is not open is opened with all that the cluster has.

    Raises:
        ClusterUnreachableError: no cluster answers.
    """
    placement = connect(address)
    try:
        return PoolLeases(placement, placement.pool_or_whole(pool))
    except BaseException:
        placement.close()
        raise


def open_pool_leases(block: RayCluster, spec: PoolSpec) -> PoolLeases:
    """Return leases of the pool `spec`, on the cluster of a block.

    The block's pools and rules are put in force. Where neither the block nor the cluster has the pool, it is made as
    `spec` says, smaller where the nodes have less.

    Raises:
        ClusterUnreachableError: no cluster answers.
        InvalidPlacementError: the block's settings cannot be used.
    """
    placement = connect(block.address or None, journal=block.journal or None)
    try:
        if block.sets_rules:
            placement.set_rules(block.preemption_rules())
        for each in block.pool_specs():
            _opened(placement, each, change=True)
        is_open = any(each.name == spec.name for each in placement.pools())
        pool = placement.pool(spec.name) if is_open else _opened(placement, spec, scale=True)
        return PoolLeases(placement, pool)
    except BaseException:
        placement.close()
        raise


def _opened(placement: Placement, spec: PoolSpec, *, scale: bool = False, change: bool = False) -> PlacementPool:
    fields = spec.model_dump()
    return placement.pool(fields.pop("name"), scale=scale, change=change, **fields)
