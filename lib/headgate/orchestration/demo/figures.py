"""What the demo shows: counts while it runs, read from the journal, and the table of scores at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import polars as pl
from rich.table import Table

from headgate.models import LOCAL_MODEL
from headgate.orchestration.demo.plan import CAMPAIGN, ENVIRONMENTS, DemoChoices, as_typed
from headgate.reports import LEADERBOARD_COLUMNS
from headgate.storage import Journal, SampleStore


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """Counts at one moment.

    Attributes:
        scored: samples by (model, environment) since the demo began.
        paused: seconds until each paused model runs again.
        open_tasks: given out, without a sample yet.
        spooled: durable, and not in the store yet.
    """

    scored: Mapping[tuple[str, str], int]
    paused: Mapping[str, float]
    open_tasks: int
    spooled: int

    @property
    def total(self) -> int:
        """All scored samples."""
        return sum(self.scored.values())

    def line(self, seconds: float) -> str:
        """Return the counts in one line, for a terminal that cannot redraw."""
        if not self.total and not self.open_tasks:
            return f"{seconds:5.1f} s  the flow runs are starting"
        by_environment = ", ".join(
            f"{environment} {sum(n for (_, e), n in self.scored.items() if e == environment)}"
            for environment in ENVIRONMENTS
        )
        paused = f"; paused: {', '.join(sorted(self.paused))}" if self.paused else ""
        return f"{seconds:5.1f} s  {self.total} scored ({by_environment}); {self.open_tasks} open{paused}"

    def table(self) -> Table:
        """Return the counts as a table."""
        is_starting = not self.total and not self.open_tasks
        table = Table(title="The flow runs are starting" if is_starting else "Sampling", title_justify="left")
        table.add_column("model", overflow="fold")
        for environment in ENVIRONMENTS:
            table.add_column(environment, justify="right", overflow="fold")
        table.add_column("state")
        for model in sorted({model for model, _ in self.scored} | set(self.paused)):
            left_s = self.paused.get(model)
            state = "sampled" if left_s is None else f"paused, service errors ({left_s:.0f} s)"
            counts = [str(self.scored.get((model, environment), 0)) for environment in ENVIRONMENTS]
            table.add_row(model, *counts, state)
        table.caption = f"{self.total} scored, {self.open_tasks} open, {self.spooled} spooled"
        return table


class DemoJournal:
    """Reads the progress of the demo's campaign out of its journal, which the flow runs share. Use it with `with`."""

    def __init__(self, folder: Path, now: float) -> None:
        self._journal = Journal(folder, CAMPAIGN)
        self._before = self._scored(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def progress(self, now: float) -> DemoProgress:
        """Return the counts since this journal was opened."""
        history = self._journal.history(now)
        scored = {pair: n - self._before.get(pair, 0) for pair, n in self._scored(now).items()}
        return DemoProgress(
            scored={pair: n for pair, n in scored.items() if n > 0},
            paused={model: until - now for model, (_, until) in history.pauses.items() if until > now},
            open_tasks=self._journal.open_count(),
            spooled=self._journal.spool_count(),
        )

    def _scored(self, now: float) -> dict[tuple[str, str], int]:
        counts = self._journal.history(now).counts
        return {pair: sum(n for _, n in minutes) for pair, minutes in counts.items()}


async def demo_samples(store: SampleStore, since: float) -> pl.DataFrame:
    """Return what a leaderboard reads of the demo's stored samples that ended at `since` or later."""
    scan = await store.scan(since=since, columns=["campaign", *LEADERBOARD_COLUMNS])
    return scan.frame.filter(pl.col("campaign") == CAMPAIGN)


def missing_local_model(samples: pl.DataFrame, choices: DemoChoices) -> str:
    """Return why the local model is in no table, and what to do; nothing when it has a score."""
    if LOCAL_MODEL in {key.partition("@")[0] for key in samples["model"]}:
        return ""
    busy = f"{LOCAL_MODEL} has no score: this machine was too busy for an answer within {choices.window_s:g} s."
    return f"{busy} Give it longer: {as_typed('--duration 90')}"
