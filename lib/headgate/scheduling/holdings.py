"""What each group holds and wants of each resource, from which shares are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.scheduling.policies import TaskPolicy

Units = tuple[tuple[str, int], ...]
"""Resources and units, sorted by name."""


@dataclass(slots=True)
class _Stake:
    """One group's holdings and demand of one resource."""

    weight: float
    held: int = 0
    queued: int = 0
    version: int = -1
    share: float = field(init=False)
    ceiling: float = field(init=False)


@dataclass(slots=True)
class _Resource:
    """All groups' stakes in one resource."""

    stakes: dict[str, _Stake] = field(default_factory=dict)
    kept: int = 0
    groups: int = 0
    weight: float = 0.0
    arrived_at: float = -math.inf
    limit: int = 0
    reserve: int = 0


class Holdings:
    """Counts, per group and resource, the units held and the tasks waiting. Pure; owned by the dispatcher.

    Invariant (`validate`): a group competes for a resource exactly while it holds units of it or has a queued task that
    wants some.
    """

    def __init__(self, policy: TaskPolicy, limits: Mapping[str, int]) -> None:
        self._policy = policy
        self._limits = limits
        self._resources: dict[str, _Resource] = {}
        self._version = 0
        self.has_ceilings = False
        """Whether any group's borrowing was ever bounded."""
        self.left = 0
        """How often a group has stopped competing: each time, the shares of the others may have grown."""

    def queued(self, group: str, weight: float, units: Units, now: float) -> None:
        """Note that a task waits."""
        for name, _ in units:
            stake = self._stake(group, name, weight, now)
            if stake.weight != weight:
                self._resources[name].weight += weight - stake.weight
                stake.weight = weight
                self.shares_changed()
            stake.queued += 1

    def started(self, group: str, units: Units) -> None:
        """Note that a waiting task was given its units."""
        for name, amount in units:
            stake = self._resources[name].stakes[group]
            stake.queued -= 1
            stake.held += amount

    def shares_changed(self) -> None:
        """Note that shares may have changed, because a limit or the set of competing groups has."""
        self._version += 1

    def dequeued(self, group: str, units: Units) -> None:
        """Note that a task no longer waits."""
        for name, _ in units:
            stake = self._resources[name].stakes[group]
            stake.queued -= 1
            if not stake.queued and not stake.held:
                self._leave(stake, name)

    def took(self, group: str, weight: float, units: Units, now: float) -> None:
        """Note that a task of the group was given units."""
        for name, amount in units:
            self._stake(group, name, weight, now).held += amount

    def gave_back(self, group: str, units: Units) -> bool:
        """Note that units were released; return whether the group may be within its share now."""
        is_below = False
        for name, amount in units:
            stake = self._resources[name].stakes[group]
            stake.held -= amount
            if stake.version != self._version or stake.held < stake.share:
                is_below = True
            if not stake.held and not stake.queued:
                self._leave(stake, name)
        return is_below

    def standing(self, group: str, units: Units) -> int:
        """Return a group's standing with one more task: 0 within its share, 1 if it would borrow, 2 at its ceiling."""
        worst = 0
        for name, amount in units:
            stake = self._resources[name].stakes.get(group)
            if stake is None or not stake.held:
                continue
            if stake.version != self._version:
                self._bound(stake, name)
            after = stake.held + amount
            if after > stake.share:
                worst = 2 if after > stake.ceiling else max(worst, 1)
        return worst

    def _bound(self, stake: _Stake, name: str) -> None:
        """Compute a group's share and ceiling, which are valid until `shares_changed`."""
        whole, limit = self._resources[name], self._limits.get(name, 0)
        stake.share = self._policy.share(name, limit, stake.weight, whole.weight, whole.groups)
        stake.ceiling = self._policy.ceiling(name, limit, stake.share)
        stake.version = self._version
        self.has_ceilings = self.has_ceilings or stake.ceiling < math.inf

    def reserve(self, resource: str, now: float) -> int:
        """Return the units of a resource that are reserved, not lent, now."""
        whole, limit = self._resources[resource], self._limits.get(resource, 0)
        if whole.limit != limit:
            whole.limit, whole.reserve = limit, self._policy.reserve(limit)
        return whole.reserve if now < whole.arrived_at + self._policy.reserve_for_s else 0

    def reserve_until(self, resource: str) -> float:
        """Return until when a resource's reserve is kept for peers that may arrive."""
        return self._of(resource).arrived_at + self._policy.reserve_for_s

    def bounds(self, group: str, resource: str) -> tuple[int, float, float]:
        """Return what a group holds of a resource, its share, and what it may hold while no peer waits."""
        stake = self._of(resource).stakes.get(group)
        if stake is None or not stake.held:
            return 0, math.inf, math.inf
        if stake.version != self._version:
            self._bound(stake, resource)
        return stake.held, stake.share, stake.ceiling

    def _of(self, name: str) -> _Resource:
        return self._resources.get(name) or _Resource()

    def _stake(self, group: str, name: str, weight: float, now: float) -> _Stake:
        """Return a group's stake in a resource; the group competes for it from now on."""
        resource = self._resources.get(name)
        if resource is None:
            resource = self._resources[name] = _Resource()
        stake = resource.stakes.get(group)
        if stake is None:
            if len(resource.stakes) > 2 * resource.kept + 64:
                resource.stakes = {g: s for g, s in resource.stakes.items() if s.held or s.queued}
                resource.kept = len(resource.stakes)
            stake = resource.stakes[group] = _Stake(weight)
        elif stake.queued or stake.held:
            return stake
        stake.weight = weight
        resource.groups += 1
        resource.weight += weight
        resource.arrived_at = now
        self._version += 1
        return stake

    def _leave(self, stake: _Stake, name: str) -> None:
        """Note that a group no longer competes; its stake is kept for a while, since most groups return."""
        resource = self._resources[name]
        resource.groups -= 1
        # The sum of the weights is reset when no group is left, so that rounding errors do not accumulate.
        resource.weight = resource.weight - stake.weight if resource.groups else 0.0
        self.left += 1
        self._version += 1

    def validate(self) -> None:
        """Assert the invariants of the class."""
        for name, resource in self._resources.items():
            for group, stake in resource.stakes.items():
                assert stake.held >= 0, f"{group} holds {stake.held} of {name}"
                assert stake.queued >= 0, f"{group} has {stake.queued} queued for {name}"
            weights = [stake.weight for stake in resource.stakes.values() if stake.held or stake.queued]
            assert resource.groups == len(weights), f"{resource.groups} groups compete for {name}, not {len(weights)}"
            assert math.isclose(resource.weight, sum(weights), abs_tol=1e-6)
