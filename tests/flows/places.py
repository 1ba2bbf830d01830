"""Where a test's campaign keeps its things, and what must hold of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from headgate.storage import Journal, open_store

RATE_PER_DAY = 200_000
"""A sample of each model every 0.43 s."""


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of one campaign."""

    folder: Path
    roster: Path

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the parameter `settings` of a flow run."""
        quick = {"batch_flush_interval": 0.1, "sink_max_wait": 1, "drain_timeout_s": 5, "low_sample_multiplier": 1}
        places = {
            "roster": str(self.roster),
            "store": str(self.folder / "samples"),
            "journal": str(self.folder / "journal"),
        }
        return quick | places | more

    async def stored(self) -> pl.DataFrame:
        """Return all stored samples, parts as they are: a sample stored twice shows twice."""
        store = open_store(str(self.folder / "samples"))
        try:
            scan = await store.scan(columns=["task_id", "campaign", "model", "environment", "sequence", "score"])
        finally:
            store.close()
        assert scan.duplicates == 0
        assert scan.problems == ()
        return scan.frame

    async def assert_nothing_lost(self, campaign: str = "main") -> int:
        """Assert that each task given out is stored once, spooled, or open; return how many samples there are."""
        stored = (await self.stored()).filter(pl.col("campaign") == campaign)
        journal = Journal(self.folder / "journal", campaign)
        try:
            pairs = journal.history(time.time()).pairs
            spooled = [(s.model, s.environment, s.sequence) for s in journal.spooled()]
            environments, models = {e for _, e in pairs}, {m for m, _ in pairs}
            open_ = [(t.model, t.environment, t.sequence) for t in journal.adopt(environments, models)]
        finally:
            journal.close()
        known = [*stored.select("model", "environment", "sequence").iter_rows(), *spooled, *open_]
        for (model, environment), pair in pairs.items():
            mine = sorted(sequence for m, e, sequence in known if (m, e) == (model, environment))
            assert mine == list(range(pair.next_sequence)), (model, environment)
        return stored.height + len(spooled)


def window(places: Places, **more: Any) -> Mapping[str, Any]:
    """Return the parameters of a quick window of affine:sat."""
    return {
        "environment": "affine:sat",
        "duration_s": 1.5,
        "rate_per_day": RATE_PER_DAY,
        "settings": places.settings(),
    } | more
