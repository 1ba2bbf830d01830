"""What runs beside sampling: reports on the samples, and compaction of the store."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="report", flow_run_name="report on {hours:g} hours")
async def report(
    hours: p.Hours = 24.0,
    environments: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    store: p.Block = "",
    reports: p.Block = "",
    title: p.Title = "Headgate report",
    missing: p.Missing = "bound",
) -> dict[str, Any]:
    """Report on the samples of the last hours: an HTML page, and artifacts with the scores and a summary.

    Args:
        hours: How far back the report goes.
        environments: Environments to report on. Empty: all that were sampled.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        title: Heading of the report.
        missing: How samples without a score count. bound: as 0 in the ranking. zero: as 0 everywhere. exclude: not at
            all, which ranks a model higher that fails where it is unsure.

    Returns:
        Number of samples, and where the page is.
    """
    return await orchestration.run_report(
        hours=hours, environments=tuple(environments), store=store, reports=reports, title=title, missing=missing
    )


@flow(name="compact-samples", flow_run_name="compact samples")
async def compact_samples(store: p.Block = "", rounds: p.Rounds = 100) -> dict[str, Any]:
    """Merge small parts of the sample store into large ones, and delete parts that no reader can still need.

    Args:
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        rounds: Maximum number of compactions; each merges a bounded amount.

    Returns:
        Counts of parts merged, written and deleted.
    """
    return await orchestration.run_compaction(store=store, rounds=rounds)
