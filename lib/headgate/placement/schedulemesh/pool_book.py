"""The pools that one scheduler has opened, and what ScheduleMesh tells of a pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from headgate.placement.amounts import Amounts, total
from headgate.placement.cluster.client import Placement
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.pool import Pool
from headgate.placement.scaling import scaled_amounts
from headgate.placement.schedulemesh.forms import amounts_of, as_written, pool_fields, times


@dataclass(frozen=True, slots=True)
class OpenPool:
    """A pool as a scheduler has opened it.

    Attributes:
        pool: takes submissions.
        labels: told again.
        target_agents: how many agents the quota is for; 0 where nobody said.
        strategy: of reserved groups.
        each: what one agent takes; None where nobody said.
        is_ours: whether it was not open before.
    """

    pool: PlacementPool
    labels: Mapping[str, str]
    target_agents: int
    strategy: str
    each: Amounts | None
    is_ours: bool

    def told(self, used: Iterable[Amounts]) -> dict[str, Any]:
        """Return ScheduleMesh's mapping of a pool, with what its agents take as it was written for them."""
        quota = self.pool.pool.quota
        taken = total(scaled_amounts(each, self.pool.factor) if self.pool.factor < 1 else each for each in used)
        return {
            "name": self.pool.name,
            "labels": dict(self.labels),
            "capacity": as_written(quota),
            "target_agents": self.target_agents,
            "placement_strategy": self.strategy,
            "used_resources": as_written(taken),
            "reserved_resources": as_written(Amounts()),
            "available_resources": as_written((quota - taken).clipped()),
            "default_agent_resources": None if self.each is None else as_written(self.each),
            "scale": self.pool.factor,
        }


class PoolBook:
    """Opens pools and remembers them. Owned by one scheduler.

    Attributes:
        known: name -> pool.
        protected: pools whose work is never stopped for that of others.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.known: dict[str, OpenPool] = {}
        self.protected: frozenset[str] = frozenset()

    def open(
        self,
        name: str,
        labels: Mapping[str, str],
        resources: Mapping[str, Any],
        target_agents: int,
        strategy: str,
        config: Mapping[str, Any] | None,
    ) -> None:
        """Open a pool; see `RayScheduler.create_pool`."""
        each = amounts_of(resources)
        quota = times(each, target_agents) if target_agents > 0 else each
        chosen = pool_fields(config, strategy, quota) | {"protected": name in self.protected}
        before = self.known.get(name)
        is_ours = before.is_ours if before is not None else name not in {pool.name for pool in self._placement.pools()}
        pool = self._placement.pool(name, quota=quota, scale=True, **chosen)
        one = each if target_agents > 0 else None
        self.known[name] = OpenPool(pool, dict(labels), target_agents, strategy, one, is_ours)

    def protect(self, names: frozenset[str]) -> None:
        """Protect these pools and no others, those that are opened later included."""
        self.protected = names
        for pool in self._placement.pools():
            if pool.name in self.known and pool.protected != (pool.name in names):
                self._placement.pool(**_as_arguments(pool) | {"protected": pool.name in names, "change": True})

    def ours(self) -> frozenset[str]:
        """Return the names of pools that were not open before."""
        return frozenset(name for name, pool in self.known.items() if pool.is_ours)


def _as_arguments(pool: Pool) -> dict[str, Any]:
    return {each.name: getattr(pool, each.name) for each in fields(Pool)}
