"""Reads the samples to export in windows that fit in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import polars as pl

from headgate.core import DAY_S, errors
from headgate.storage.exchange.formats import conversation_without_keys, without_keys
from headgate.storage.frames import Scan
from headgate.storage.selection import Chosen
from headgate.storage.store import SampleStore

ROWS_AT_ONCE: Final = 10_000
"""Maximum samples in memory, unless more ended at the same moment: 100 MB with conversations of 10 kB."""

_PARQUET_BYTES_AT_ONCE: Final = 16 * 2**20
"""Average compressed size of parts per window: about 100 MB of longer conversations."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time in one environment.

    Attributes:
        since: inclusive.
        until: exclusive; None for the last.
        label: the day on which it begins and its number on that day; empty for an environment's only window.
    """

    environment: str
    since: float | None
    until: float | None
    rows: int
    label: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read: the windows, and the models in them."""

    chosen: Chosen
    windows: tuple[Window, ...]
    models: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of chosen samples."""
        return sum(window.rows for window in self.windows)

    def require_rows(self, why: str) -> None:
        """Return if any sample is chosen.

        Raises:
            errors.InvalidInputError: if none is; `why` explains why the format needs one.
        """
        if not self.windows:
            raise errors.InvalidInputError(
                f"there is nothing to export: no stored sample is chosen, and {why}",
                next_step="`headgate summary` shows what the store has; choose more samples, or sample first.",
            )


async def planned(store: SampleStore, chosen: Chosen, *, rows_at_once: int = ROWS_AT_ONCE) -> Plan:
    """Return the windows in which the chosen samples are read; reads times and scores, but no conversations."""
    visible = await store.visible()
    chosen.require_known(visible)
    windows: list[Window] = []
    models: set[str] = set()
    for environment in sorted({part.environment for part in visible.parts}):
        if chosen.environments and environment not in chosen.environments:
            continue
        found = _whole(
            await store.scan(
                [environment],
                chosen.since,
                chosen.until,
                columns=["task_id", "model", "campaign", "finished_at", "score", "success"],
                original=chosen.original,
            )
        )
        rows = chosen.rows(found)
        models.update(rows["model"].unique())
        parts = [part for part in visible.parts if part.environment == environment and chosen.wants(part)]
        stored_rows, size_bytes = sum(part.rows for part in parts), sum(part.size_bytes for part in parts)
        most = min(rows_at_once, max(1, _PARQUET_BYTES_AT_ONCE * stored_rows // max(1, size_bytes)))
        windows += await asyncio.to_thread(_windows, environment, rows["finished_at"].sort(), chosen, most)
    return Plan(chosen, tuple(windows), tuple(sorted(models)))


async def read(store: SampleStore, plan: Plan) -> AsyncIterator[tuple[Window, pl.DataFrame]]:
    """Yield each window with its rows, keys masked, and each task once."""
    environment, seen = "", set[str]()
    for window in plan.windows:
        if window.environment != environment:
            environment, seen = window.environment, set()
        found = _whole(await store.scan([environment], window.since, window.until, original=plan.chosen.original))
        rows = plan.chosen.rows(found)
        if window.label:  # otherwise the scan has removed duplicates
            rows = rows.filter(~pl.col("task_id").is_in(list(seen)))
            seen.update(rows["task_id"])
        yield window, await asyncio.to_thread(_without_keys, rows)


def _whole(found: Scan) -> pl.DataFrame:
    if found.problems:
        raise errors.CorruptDataError(f"{found.problems[0].path}: {found.problems[0].reason}")
    return found.frame


def _windows(environment: str, times: pl.Series, chosen: Chosen, rows_at_once: int) -> Iterator[Window]:
    """Yield windows of whole days if they fit, otherwise of parts of a day."""
    if times.len() <= rows_at_once:
        if times.len():
            yield Window(environment, chosen.since, chosen.until, times.len(), "")
        return
    cuts = _cuts(times, rows_at_once)
    numbers: dict[str, int] = {}
    for place, first in enumerate(cuts):
        since = times[first]
        after = cuts[place + 1] if place + 1 < len(cuts) else times.len()
        until = times[after] if after < times.len() else chosen.until
        day = datetime.fromtimestamp(since, UTC).date().isoformat()
        numbers[day] = numbers.get(day, 0) + 1
        label = day if numbers[day] == 1 else f"{day}-{numbers[day]}"
        yield Window(environment, since, until, after - first, label)


def _cuts(times: pl.Series, rows_at_once: int) -> list[int]:
    """Return the positions in the sorted times at which windows begin."""
    cuts, first = [0], 0
    while times.len() - first > rows_at_once:
        last = times[first + rows_at_once]
        day = last - last % DAY_S
        cut = int(times.search_sorted(day, side="left"))  # the last midnight before the window is full
        if cut <= first:
            cut = int(times.search_sorted(last, side="left"))
        if cut <= first:  # more samples at one moment than a window holds
            cut = int(times.search_sorted(last, side="right"))
        if cut >= times.len():
            break
        cuts.append(cut)
        first = cut
    return cuts


def _without_keys(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        pl.Series("conversation", [conversation_without_keys(text) for text in frame["conversation"]], dtype=pl.String),
        pl.Series("why", [without_keys(text) for text in frame["why"]], dtype=pl.String),
        pl.Series("error", [without_keys(text) if text else text for text in frame["error"]], dtype=pl.String),
    )
