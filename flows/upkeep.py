"""What runs beside the sampling: the report on what was sampled, and the upkeep of the store."""

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
    """Report on the samples of the last hours: a page of its own, and artifacts with the scores and a summary.

    Args:
        hours: How far the report reaches back.
        environments: What to report on. Empty: everything that was sampled.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        title: Heading of the report.
        missing: What samples without a score count as. bound: 0 where models are ranked. zero: 0 everywhere. exclude:
            nothing, so that a model that fails where it is unsure ranks higher.

    Returns:
        Number of samples, and where the page is.
    """
    return await orchestration.run_report(
        hours=hours, environments=tuple(environments), store=store, reports=reports, title=title, missing=missing
    )


@flow(name="compact-samples", flow_run_name="compact samples")
async def compact_samples(store: p.Block = "", rounds: p.Rounds = 100) -> dict[str, Any]:
    """Merge the small parts of the sample store into large ones, and remove what no reader can need any more.

    Args:
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        rounds: Maximum number of compactions; each merges a bounded amount.

    Returns:
        Counts of parts merged, made and deleted.
    """
    return await orchestration.run_compaction(store=store, rounds=rounds)
