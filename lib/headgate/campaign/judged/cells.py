"""Which samples a run with a judge takes: those that are not there yet, those that a killed run left first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from headgate.campaign.judged.figures import JudgedFigures
from headgate.campaign.matrix import MatrixTaskProvider
from headgate.core import Model, Task
from headgate.environments import Environment
from headgate.sampling import TaskProvider
from headgate.storage import JournalThread, Opening, SampleStore

_COLUMNS = ("campaign", "model", "environment", "sequence", "score", "success", "error_kind", "why")


async def missing_cells(
    store: SampleStore, campaign: str, environments: Sequence[str], instances: int
) -> tuple[MatrixTaskProvider, JudgedFigures]:
    """Return the cells without a scored sample in the store, and the counts of what is there.

    Cells that only failed are taken again, as another stage, so that both are on record.

    Raises:
        StoreError: if the store cannot be read.
    """
    rows = (await store.scan(environments=environments, columns=list(_COLUMNS))).frame
    rows = rows.filter(pl.col("campaign") == campaign)
    figures = JudgedFigures()
    for model, environment, score, kind, why, success in rows.select(
        "model", "environment", "score", "error_kind", "why", "success"
    ).iter_rows():
        figures.count(model, environment, score, kind, why, success=success)
    cells = rows.group_by("model", "environment", "sequence").agg(
        pl.col("score").is_not_null().any().alias("is_scored"), pl.len().alias("runs")
    )
    done = {(m, e, n) for m, e, n, is_scored, _ in cells.iter_rows() if is_scored}
    failed = {(m, e, n): runs for m, e, n, is_scored, runs in cells.iter_rows() if not is_scored}
    return MatrixTaskProvider(list(environments), instances, done=done, failed=failed), figures


async def opened_tasks(
    journal: JournalThread,
    cells: TaskProvider,
    models: Mapping[str, Model],
    environments: Mapping[str, Environment],
    now: float,
) -> tuple[list[Task], int]:
    """Return the tasks of a run, and how many of them an earlier run had begun; those come first.

    What the journal knows already, as open, held by a process that lives, or spooled, is not opened again.
    """
    tasks = await journal.write(journal.journal.adopt, list(environments), list(models))
    reopened = len(tasks)
    cells.roster_changed(list(models.values()))
    while cells.next_at(now) is not None:
        demand, _ = await cells.take(now)
        openings = [
            Opening(
                d.model,
                d.environment,
                d.due_at,
                d.interval_s,
                environments[d.environment].spec.data_length,
                models[d.model].weight,
                d.sequence,
                d.stage,
            )
            for d in demand
        ]
        opened = await journal.write(journal.journal.open, openings)
        tasks.extend(task for task in opened if isinstance(task, Task))
    return tasks, reopened
