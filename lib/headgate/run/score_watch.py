"""Watches the scores of a run's models and what serves them; reports score drops and changed endpoints.

It starts from the samples of earlier runs: past scores, and for how long a model has had none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from headgate.core import DAY_S, Sample
from headgate.core.errors import StoreError
from headgate.core.events import EndpointDrifted
from headgate.run.parts import Parts
from headgate.run.plan import RunStore
from headgate.statistics import ScoreChange
from headgate.storage import RecentSample

MOST_ROWS: Final = 100_000
"""The newest stored samples that a run reads back: a second of CPU time."""

_AT_ONCE: Final = 250
_MOST_WAITING: Final = 20_000
_AGAIN_S: Final = 60.0
_MOST_SERVED: Final = 16
"""How many of the served names that a model answered under are remembered."""


class ScoreWatch:
    """Reports score drops and changed endpoints, once each. Owned by the run.

    In the background it reads the store's samples of the last `score_history_days`, without reporting anything;
    samples accepted meanwhile wait. After samples were invalidated or scored again, it starts over from those that
    still count. Endpoints that change back and forth within a day are reported once.
    """

    def __init__(self, parts: Parts, store: RunStore) -> None:
        self._parts = parts
        self._store = store
        self._days = parts.settings.score_history_days
        self._changes: dict[str, ScoreChange] = {}
        self._served: dict[str, dict[str, float]] = {}
        self._waiting: deque[RecentSample] | None = deque(maxlen=_MOST_WAITING)
        self._taken: deque[RecentSample] = deque(maxlen=_MOST_WAITING)  # of this run; the store may lack them yet
        self._recounted = asyncio.Event()
        self._knows_past = False

    async def keep(self) -> None:
        """Read the store's samples, then those accepted meanwhile, and report changes from there on."""
        parts = self._parts
        while self._days:
            self._recounted.clear()
            asked = parts.settings.campaign, parts.now() - self._days * DAY_S
            try:
                rows = await self._store.recent(*asked, MOST_ROWS)
                gone = await self._store.invalid(*asked) if self._taken else ()
            except StoreError:
                await parts.clock.sleep(_AGAIN_S)
                continue
            known = {_key(row) for row in rows} | {row[:3] for row in gone}
            past = [*rows, *(row for row in self._taken if _key(row) not in known)]
            if not self._knows_past:
                self._resume_unscored(rows)
            self._changes, self._waiting = {}, self._waiting or deque(maxlen=_MOST_WAITING)
            for number, row in enumerate(past):
                self._take(row, is_told=True)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            waiting, self._waiting = self._waiting, None
            for row in waiting:
                if _key(row) not in known:
                    self._take(row)
            self._taken.extend(waiting)
            await self._recounted.wait()

    def recount(self) -> None:
        """Read the store's samples again: some were invalidated or restored."""
        self._recounted.set()

    def forget(self, model: str) -> None:
        """Drop what is known of a model."""
        self._changes.pop(model, None)
        self._served.pop(model, None)

    def accepted(self, sample: Sample) -> None:
        """Note an accepted sample of the run."""
        if not self._days:
            return
        row = RecentSample(
            sample.model, sample.environment, sample.index, sample.score, sample.finished_at, sample.served_by
        )
        if self._waiting is None:
            self._taken.append(row)
            self._take(row)
        else:
            self._waiting.append(row)

    def _take(self, row: RecentSample, *, is_told: bool = False) -> None:
        if row.served_by:
            self._served_by(row, is_told=is_told)
        if row.score is None:
            return
        change = self._changes.get(row.model)
        if change is None:
            change = self._changes[row.model] = ScoreChange(len(self._parts.environments), row.model)
        drop = change.add(row.environment, row.task, row.score, row.finished_at)
        if drop is not None and not is_told:
            self._parts.emit(drop)

    def _resume_unscored(self, rows: Sequence[RecentSample]) -> None:
        """Tell each model's sampler how many samples in a row had no score right before this run."""
        self._knows_past = True
        unscored: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.score is None:
                unscored[row.model].append(row.finished_at)
            else:
                unscored[row.model].clear()
        for model, sampler in self._parts.samplers.items():
            if ends := unscored[model]:
                sampler.resume_unscored(len(ends), ends[0])

    def _served_by(self, row: RecentSample, *, is_told: bool) -> None:
        served = self._served.setdefault(row.model, {})
        latest = next(reversed(served), "")
        seen_at = served.pop(row.served_by, None)
        served[row.served_by] = row.finished_at
        if row.served_by == latest or not latest:
            return
        if len(served) > _MOST_SERVED:
            del served[next(iter(served))]
        if not is_told and (seen_at is None or row.finished_at - seen_at > DAY_S):
            self._parts.emit(EndpointDrifted(row.model, latest, row.served_by))


def _key(row: RecentSample) -> tuple[str, str, float]:
    return row.model, row.environment, row.finished_at
