"""A fixed matrix of models × environments × instances, in place of daily rates: what an evaluation runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from headgate.core import Model, unit_hash
from headgate.core.errors import InvalidInputError
from headgate.core.events import Event
from headgate.sampling import Demand

_AT_ONCE = 256


Cell = tuple[str, str, int]
"""Model key, environment, and number of the instance."""


class MatrixTaskProvider:
    """Gives each cell of the matrix once, instance by instance over all models and environments.

    Implements `headgate.sampling.TaskProvider`. Cells that were scored before are left out, those that only
    failed are taken again as another stage (`sample.2`, …), so that both are on record.
    """

    def __init__(
        self,
        environments: Sequence[str],
        instances: int,
        *,
        done: Collection[Cell] = (),
        failed: Mapping[Cell, int] | None = None,
        is_shuffled: bool = False,
    ) -> None:
        """Prepare a matrix.

        Args:
            environments: their names.
            instances: per model and environment, from 0.
            done: cells that have a scored sample.
            failed: cells that have unscored samples only, and how many.
            is_shuffled: give the instances in a random order, the same for every model and at every run; where sampling
                may stop before the last one, those that were taken are then like those that were not.

        Raises:
            InvalidInputError: if `instances` is below 1.
        """
        self._environments = tuple(environments)
        if instances < 1:
            raise InvalidInputError(f"instances must be >= 1 (got {instances})")
        self._instances = instances
        self.is_shuffled = is_shuffled
        self._done = frozenset(done)
        self._failed = dict(failed or {})
        self._known: set[str] = set()
        self._waiting: deque[Cell] = deque()

    def next_at(self, now: float) -> float | None:
        """Return `now` while there are cells to give."""
        return now if self._waiting else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next cells, a few hundred at once."""
        cells = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        return [self._demand(cell, now) for cell in cells], ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Add the cells of models that were not there before, drop those of models that are gone."""
        present = {model.key for model in models}
        self._waiting = deque(cell for cell in self._waiting if cell[0] in present)
        fresh = [model.key for model in models if model.key not in self._known]
        self._known.update(fresh)
        self._waiting.extend(
            (model, environment, instance)
            for instance in sorted(range(self._instances), key=self.place)
            for environment in self._environments
            for model in fresh
            if (model, environment, instance) not in self._done
        )

    def place(self, instance: int) -> float:
        """Return what instances are ordered by."""
        return unit_hash("place", str(instance)) if self.is_shuffled else instance

    def _demand(self, cell: Cell, now: float) -> Demand:
        model, environment, instance = cell
        runs = self._failed.get(cell, 0)
        stage = f"sample.{runs + 1}" if runs else "sample"
        return Demand(model, environment, due_at=now, interval_s=0.0, sequence=instance, stage=stage)
