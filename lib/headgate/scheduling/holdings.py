"""What each group holds and wants of each resource: what shares are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.scheduling.policies import Claim, TaskPolicy

Units = tuple[tuple[str, int], ...]
"""Resources and units, sorted by name."""


@dataclass(slots=True)
class _Stake:
    """One group's part of one resource."""

    weight: float
    held: int = 0
    queued: int = 0


@dataclass(slots=True)
class _Total:
    """All groups' parts of one resource."""

    weight: float = 0.0
    groups: int = 0
    arrived_at: float = -math.inf


class Holdings:
    """Counts, per group and resource, what is held and how many tasks wait. Pure; owned by the dispatcher.

    Invariant (`validate`): a group counts among those that compete for a resource as long as it holds some of it or has
    a task queued that wants it.
    """

    def __init__(self) -> None:
        self._stakes: dict[tuple[str, str], _Stake] = {}
        self._totals: dict[str, _Total] = {}
        self._shares: dict[tuple[str, float], tuple[float, float]] = {}
        self._reserves: dict[str, tuple[int, float]] = {}
        self.left = 0
        """Groups that stopped to compete, ever: when it grows, the shares of the others may have grown."""
        self.version = 0
        """Grows with everything that changes shares."""

    def queued(self, group: str, weight: float, units: Units, now: float) -> None:
        """Note a task that waits."""
        for resource, _ in units:
            stake = self._stake(group, resource, weight, now)
            if stake.weight != weight:
                self._totals[resource].weight += weight - stake.weight
                stake.weight = weight
                self.shares_changed()
            stake.queued += 1

    def started(self, group: str, units: Units) -> None:
        """Note that a task that waited was given its units."""
        for resource, amount in units:
            stake = self._stakes[group, resource]
            stake.queued -= 1
            stake.held += amount

    def shares_changed(self) -> None:
        """Note that shares may have changed: a limit, or who competes."""
        self.version += 1
        self._shares.clear()
        self._reserves.clear()

    def dequeued(self, group: str, units: Units) -> None:
        """Note a task that no longer waits."""
        for resource, _ in units:
            stake = self._stakes[group, resource]
            stake.queued -= 1
            if not stake.queued and not stake.held:
                self._drop(group, resource)

    def took(self, group: str, weight: float, units: Units, now: float) -> None:
        """Note units that a group's task was given."""
        for resource, amount in units:
            self._stake(group, resource, weight, now).held += amount

    def gave_back(self, group: str, units: Units) -> None:
        """Note units that came back."""
        for resource, amount in units:
            stake = self._stakes[group, resource]
            stake.held -= amount
            if not stake.queued and not stake.held:
                self._drop(group, resource)

    def held(self, group: str, resource: str) -> int:
        """Return the units that a group holds."""
        stake = self._stakes.get((group, resource))
        return stake.held if stake is not None else 0

    def standing(self, policy: TaskPolicy, group: str, units: Units, limits: dict[str, int]) -> int:
        """Return how a group stands with one more task: 0 within its share, 1 if it would borrow, 2 at its ceiling."""
        worst = 0
        for resource, amount in units:
            stake = self._stakes.get((group, resource))
            if stake is None or not stake.held:
                continue
            bounds = self._shares.get((resource, stake.weight))
            if bounds is None:
                bounds = self._bounds(policy, resource, stake.weight, limits.get(resource, 0))
            after = stake.held + amount
            if after > bounds[0]:
                worst = 2 if after > bounds[1] else max(worst, 1)
        return worst

    def _bounds(self, policy: TaskPolicy, resource: str, weight: float, limit: int) -> tuple[float, float]:
        """Return share and ceiling; groups of one weight have the same, until `shares_changed`."""
        total = self._totals[resource]
        share = policy.share(resource, limit, weight, total.weight, total.groups)
        bounds = self._shares[resource, weight] = (share, policy.ceiling(resource, limit, share))
        return bounds

    def reserve(self, policy: TaskPolicy, resource: str, limit: int, now: float) -> int:
        """Return the units of a resource that are not lent now."""
        kept, until = self._reserves.get(resource) or self._reserve(policy, resource, limit)
        return kept if now < until else 0

    def _reserve(self, policy: TaskPolicy, resource: str, limit: int) -> tuple[int, float]:
        found = self._reserves[resource] = (policy.reserve(limit), self.reserve_until(policy, resource))
        return found

    def reserve_until(self, policy: TaskPolicy, resource: str) -> float:
        """Return until when the reserve of a resource is kept for peers that may arrive."""
        total = self._totals.get(resource)
        return -math.inf if total is None else total.arrived_at + policy.reserve_for_s

    def claim(self, group: str, resource: str, wanted: int, *, free: int, limit: int, **known: bool) -> Claim:
        """Return what a group claims of a resource; `known` are the facts of `Claim` that only its caller knows."""
        stake = self._stakes.get((group, resource)) or _Stake(1.0)
        total = self._totals.get(resource) or _Total(stake.weight, 1)
        return Claim(resource, wanted, stake.held, free, limit, stake.weight, total.weight, total.groups, **known)

    def groups(self) -> Iterable[tuple[str, str]]:
        """Return the pairs of group and resource that compete."""
        return list(self._stakes)

    def _stake(self, group: str, resource: str, weight: float, now: float) -> _Stake:
        stake = self._stakes.get((group, resource))
        if stake is None:
            stake = self._stakes[group, resource] = _Stake(weight)
            total = self._totals.get(resource)
            if total is None:
                total = self._totals[resource] = _Total()
            total.weight += weight
            total.groups += 1
            total.arrived_at = now
            self.shares_changed()
        return stake

    def _drop(self, group: str, resource: str) -> None:
        stake = self._stakes.pop((group, resource))
        total = self._totals[resource]
        total.groups -= 1
        # The sum of the weights is made anew when it is empty, so that rounding does not pile up.
        total.weight = total.weight - stake.weight if total.groups else 0.0
        self.left += 1
        self.shares_changed()

    def validate(self) -> None:
        """Assert the invariants of the class."""
        for (group, resource), stake in self._stakes.items():
            assert stake.held >= 0, f"{group} holds {stake.held} of {resource}"
            assert stake.queued >= 0, f"{group} has {stake.queued} queued for {resource}"
            assert stake.held or stake.queued, f"{group} competes for {resource} without holding or wanting it"
        for resource, total in self._totals.items():
            stakes = [s for (_, name), s in self._stakes.items() if name == resource]
            assert total.groups == len(stakes)
            assert math.isclose(total.weight, sum(s.weight for s in stakes), abs_tol=1e-6)
