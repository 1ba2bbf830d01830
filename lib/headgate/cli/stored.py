"""The sample store of commands that read it; a misspelt name is an error, not a campaign without samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headgate import storage
from headgate.cli.options import names_in
from headgate.cli.output import say
from headgate.config import Settings
from headgate.core import errors

if TYPE_CHECKING:
    import polars as pl


def existing_store(settings: Settings) -> storage.SampleStore:
    """Return the sample store that the settings name.

    Raises:
        InvalidInputError: if it is a folder, and there is none.
    """
    sample_store = storage.sample_store  # first, so that a missing package is reported as such
    if "://" not in settings.store and not Path(settings.store).expanduser().is_dir():
        raise errors.InvalidInputError(
            f"there is no sample store at {settings.store!r}: the folder does not exist",
            next_step=f"{_elsewhere(settings)}`headgate run` makes a store with its first samples; --store names one.",
        )
    return sample_store(settings)


async def require_stored(store: storage.SampleStore, campaign: str | None) -> None:
    """Check that the store has samples of the campaign, if one is named.

    Raises:
        InvalidInputError: if it has none.
    """
    if campaign is not None:
        storage.require_named(
            "campaign", {campaign}, set((await store.scan(columns=["campaign"])).frame["campaign"].unique())
        )


async def chosen_samples(
    store: storage.SampleStore, chosen: storage.Chosen, columns: Sequence[str] | None = None
) -> tuple[pl.DataFrame, tuple[storage.Problem, ...]]:
    """Return the stored samples that are chosen, and what could not be read.

    Raises:
        InvalidInputError: if the store has no samples of something that is named.
    """
    chosen.require_known(await store.visible())
    await require_stored(store, chosen.campaign)
    read = None if columns is None else list(dict.fromkeys([*columns, *storage.Chosen.COLUMNS]))
    span = (chosen.environments or None, chosen.since, chosen.until)
    found = await store.scan(*span, read, original=chosen.original)
    return chosen.rows(found.frame), found.problems


def warn_of(problems: Iterable[storage.Problem]) -> None:
    """Print to stderr what could not be read, and why."""
    for problem in problems:
        say(f"left out {problem.path}: {problem.reason}", stderr=True)


def conditions_of(where: str, tasks: Sequence[str] = (), mark: str = "") -> list[str]:
    """Return the conditions, in SQL, that options put on samples."""
    found = [where] if where else []
    if ids := names_in(tasks):
        found.append(f"task_id IN ({', '.join(map(_quoted, ids))})")
    if mark:
        found.append(f"task_id IN (SELECT task_id FROM marks WHERE mark = {_quoted(mark)})")  # noqa: S608 - quoted
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def tasks_where(store: storage.SampleStore, conditions: Sequence[str], *, view: str) -> list[str] | None:
    """Return the tasks whose samples in a view meet conditions in SQL; None without conditions.

    Raises:
        InvalidInputError: if a condition cannot be read.
    """
    if not conditions:
        return None
    every = conditions[0] if len(conditions) == 1 else " AND ".join(f"({one})" for one in conditions)
    sql = f"SELECT task_id FROM {view} WHERE {every}"  # noqa: S608 - by a user who may delete everything
    return [task_id for (task_id,) in (await store.query(sql)).rows]


async def no_samples(store: storage.SampleStore, settings: Settings) -> errors.NoSamplesError:
    """Return why a search of the store found nothing: it is empty, or its samples ended at other times."""
    parts = (await store.visible()).parts
    if not parts:
        return errors.NoSamplesError(
            f"the sample store {settings.store} is empty",
            next_step=f"{_elsewhere(settings)}`headgate run` fills a store; --store names another one.",
        )
    newest = datetime.fromtimestamp(max(part.max_finished_at for part in parts), UTC)
    return errors.NoSamplesError(
        f"no sample in {settings.store} ended in this time; the newest ended at {newest:%Y-%m-%d %H:%M} UTC",
        next_step="Choose a longer time, or name another store with --store.",
    )


def _elsewhere(settings: Settings) -> str:
    """Return a sentence on stores of campaigns beside the one that is missing; empty if there are none."""
    if "://" in settings.store:
        return ""
    found = sorted(Path(settings.store).expanduser().parent.glob("*/samples/manifests"))
    named = " or ".join(f"--store {path.parent}" for path in found[:3])
    return f"Other campaigns have stores here: {named}, or give their file as --campaign. " if found else ""
