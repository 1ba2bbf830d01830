"""A fixed matrix of models × environments × instances, in place of daily rates: what an evaluation runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice

from headgate.core import Model
from headgate.core.events import Event
from headgate.sampling import Demand

_AT_ONCE = 256


class MatrixTaskProvider:
    """Gives each cell of the matrix once, instance by instance over all models and environments.

    Implements `headgate.sampling.TaskProvider`. Cells in `done` are left out, so that an evaluation that was stopped
    goes on where it was.
    """

    def __init__(
        self, environments: Sequence[str], instances: int, done: Collection[tuple[str, str, int]] = ()
    ) -> None:
        self._environments = tuple(environments)
        self._instances = instances
        self._done = frozenset(done)
        self._known: set[str] = set()
        self._waiting: deque[tuple[str, str, int]] = deque()

    def next_at(self, now: float) -> float | None:
        """Return `now` while there are cells to give."""
        return now if self._waiting else None

    async def take(self, now: float) -> tuple[Sequence[Demand], Sequence[Event]]:
        """Return the next cells, a few hundred at once."""
        cells = list(islice(self._waiting, _AT_ONCE))
        for _ in cells:
            self._waiting.popleft()
        return [Demand(m, e, due_at=now, interval_s=0.0, sequence=i) for m, e, i in cells], ()

    def roster_changed(self, models: Sequence[Model]) -> None:
        """Add the cells of models that were not there before, drop those of models that are gone."""
        present = {model.key for model in models}
        self._waiting = deque(cell for cell in self._waiting if cell[0] in present)
        fresh = [model.key for model in models if model.key not in self._known]
        self._known.update(fresh)
        self._waiting.extend(
            (model, environment, instance)
            for instance in range(self._instances)
            for environment in self._environments
            for model in fresh
            if (model, environment, instance) not in self._done
        )
