"""Who is better than whom, and how surely."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="leaderboard", flow_run_name="{title}")
async def leaderboard(
    environments: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    hours: p.Hours | None = None,
    against: str = "",
    ks: list[p.PassAt] = [],  # noqa: B006
    store: p.Block = "",
    reports: p.Block = "",
    title: p.Title = "Leaderboard",
) -> dict[str, Any]:
    """Compare the models of the stored samples: intervals by task, ranks, paired differences and pass@k.

    Args:
        environments: What to compare on. Empty: everything that was sampled.
        hours: How far it reaches back. Empty: to the first sample.
        against: The model that the others are compared with, by name or by name@revision. Empty: the best by mean.
        ks: The k of pass@k, e.g. [1, 5]. Empty: none.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        title: Heading of the page.

    Returns:
        Rank, groups and mean of each model, and where the page is.
    """
    order = orchestration.LeaderboardOrder(
        environments=tuple(environments),
        hours=hours,
        against=against,
        ks=tuple(ks),
        store=store,
        reports=reports,
        title=title,
    )
    return await orchestration.run_leaderboard(order)
