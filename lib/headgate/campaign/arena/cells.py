"""The comparisons of a run, as tasks for its journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.campaign.arena.choosing import Pairing
from headgate.campaign.arena.records import again, comparison_environment
from headgate.core import Model
from headgate.core.events import Event
from headgate.sampling import Demand

_AT_ONCE: Final = 256


class PairingProvider:
    """Gives each pairing once. Implements `TaskProvider`; owned by one run."""

    def __init__(self, pairings: Sequence[Pairing], stage: str, failed: Mapping[Pairing, int]) -> None:
        """Prepare it.

        Args:
            pairings: to ask for.
            stage: of the judge and rubric.
            failed: how often a pairing was asked for without a verdict.
        """
        self._waiting = deque(pairings)
        self._stage = stage
        self._failed = failed

    def next_at(self, now: float) -> float | None:
        """Return `now` while there are pairings to give."""
        return now if self._waiting else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next pairings, a few hundred at once."""
        taken = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        return [self._demand(pairing, now) for pairing in taken], ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Change nothing: the pairings are of models that have answered already."""

    def _demand(self, pairing: Pairing, now: float) -> Demand:
        return Demand(
            pairing.first,
            comparison_environment(pairing.environment, pairing.second),
            due_at=now,
            interval_s=0.0,
            sequence=pairing.index,
            stage=again(self._stage, self._failed.get(pairing, 0)),
        )
