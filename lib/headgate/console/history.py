"""What figures were while somebody watched: a bounded memory of numbers at moments."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

MOST_POINTS: Final = 1_800
"""An hour at one point every two seconds."""

MOST_SERIES: Final = 240
"""Of one source; with as many points 4 MB at most. Further ones are not kept."""


class History:
    """Series of figures with one list of moments. Owned by a source.

    Invariant: every series has as many points as there are moments; None stands where it was not told.
    """

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=MOST_POINTS)
        self._series: dict[str, deque[float | None]] = {}

    def add(self, at: float, figures: Mapping[str, float | None]) -> None:
        """Keep the figures of one moment; a series that nobody told of for as long as is kept is dropped."""
        for name in figures:
            if name not in self._series and len(self._series) < MOST_SERIES:
                self._series[name] = deque([None] * len(self.times), maxlen=MOST_POINTS)
        self.times.append(at)
        for name, series in list(self._series.items()):
            series.append(figures.get(name))
            if series[-1] is None and not any(value is not None for value in series):
                del self._series[name]

    def series(self, name: str) -> list[float | None]:
        """Return the points of a series, oldest first; nothing where it is not known."""
        return list(self._series.get(name, ()))

    def latest(self, name: str, points: int = 60) -> list[float | None]:
        """Return the newest points of a series, oldest first."""
        series = self._series.get(name, deque())
        return list(islice(series, max(0, len(series) - points), None))

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._series) <= MOST_SERIES
        assert all(len(series) == len(self.times) <= MOST_POINTS for series in self._series.values())
