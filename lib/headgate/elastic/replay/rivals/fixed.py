"""No rule at all: always as many workers."""

from __future__ import annotations

from headgate.elastic.demand import Demand, Desired


class Fixed:
    """Always as many workers: what elasticity is to be cheaper than."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the number it was made with."""
        del demand, now
        return Desired(self._workers, f"it is always {self._workers}")

    def validate(self) -> None:
        """Assert that there is a worker."""
        assert self._workers >= 1, self._workers
