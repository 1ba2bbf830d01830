"""Which models are better than which, and how certain that is."""

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
    missing: p.Missing = "bound",
    store: p.Block = "",
    reports: p.Block = "",
    title: p.Title = "Leaderboard",
) -> dict[str, Any]:
    """Compare the models of the stored samples: intervals by task, ranks, paired differences and pass@k.

    Args:
        environments: Environments to compare on. Empty: all that were sampled.
        hours: How far back to go. Empty: to the first sample.
        against: Model to compare the others with, by name or name@revision. Empty: the one with the best mean.
        ks: The k of pass@k, e.g. [1, 5]. Empty: none.
        missing: How samples without a score count. bound: as 0 in the ranking. zero: as 0 everywhere. exclude: not at
            all, which ranks a model higher that fails where it is unsure.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        title: Heading of the page.

    Returns:
        Rank, groups and mean of each model, and where the page is.
    """
    return await orchestration.run_leaderboard(
        environments=environments,
        hours=hours,
        against=against,
        ks=ks,
        missing=missing,
        store=store,
        published_in=reports,
        title=title,
    )


@flow(name="arena", flow_run_name="{title}")
async def arena(  # noqa: PLR0917 - the fields of a form
    models: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    environments: list[p.Name] = [],  # noqa: B006
    instances: p.Instances | None = None,
    comparisons: p.Comparisons | None = None,
    judge: p.Block = "",
    judge_model: str = "",
    judgements: p.Judgements | None = None,
    rubric: p.Block = "",
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "arena",
    title: p.Title = "Arena",
    settings: p.Settings = {},  # noqa: B006
) -> dict[str, Any]:
    """Have a judge compare two models' answers to the same task, in both orders, and rate the models.

    Earlier comparisons of this judge are reused. Comparisons are kept in the folder `arena` of the store.

    Args:
        models: Models by name or name@revision. Empty: all that have answers.
        environments: Environments to compare on. Empty: all with answers; with instances, all that need a judge.
        instances: Only the tasks numbered 0 to n-1; missing answers are sampled first. Empty: all tasks with answers.
        comparisons: Maximum number of new comparisons, the most informative first. Empty: all possible ones.
        judge: Name of the judge's Model Endpoint block. Empty: the worker's HEADGATE_JUDGE_URL.
        judge_model: Name of the judge at its endpoint. Empty: the block's served name, else HEADGATE_JUDGE_MODEL.
        judgements: How often each order of two answers is judged. Empty: as the settings say (1).
        rubric: Name of a Judge Rubric block to judge by. Empty: the environments' own rubrics, where they have one.
        roster: Name of a Model Roster block, to sample missing answers. Empty: the worker's HEADGATE_ROSTER.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        campaign: Name that comparisons and newly sampled answers are counted under.
        title: Heading of the page.
        settings: Other settings by name.

    Returns:
        Rank, groups and rating of each model, counts of comparisons, and where the page is.
    """
    sampling = orchestration.SamplingOrder.of(locals(), judge="", models=())
    return await orchestration.run_arena_order(
        sampling,
        models=models,
        instances=instances,
        comparisons=comparisons,
        judge=judge,
        judge_model=judge_model,
        judgements=judgements,
        rubric=rubric,
        title=title,
    )
