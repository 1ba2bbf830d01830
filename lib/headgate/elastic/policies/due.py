"""Work that is known before its requests come: engines wake when it is due."""

from __future__ import annotations

from collections.abc import Callable

from headgate.elastic.demand import Demand, Desired, Policy, whole


class ForDue:
    """Another policy, with at least as many workers as what is due will fill.

    Args:
        policy: goes by requests.
        due: says how many requests are expected at once.
    """

    def __init__(self, policy: Policy, due: Callable[[], int]) -> None:
        self._policy = policy
        self._due = due

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be."""
        advised = self._policy.decide(demand, now)
        due = self._due()
        needed = min(whole(due / demand.slots), demand.highest)
        return advised if needed <= advised.workers else Desired(needed, f"{due} samples are due")

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._policy.validate()
