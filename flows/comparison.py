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
    missing: p.Missing = "bound",
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
        missing: What samples without a score count as. bound: 0 where models are ranked. zero: 0 everywhere. exclude:
            nothing, so that a model that fails where it is unsure ranks higher.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
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
        models: Models by name, or by name@revision. Empty: all that have answered.
        environments: What to compare on. Empty: everything that was answered; with instances, what needs a judge.
        instances: Only the tasks with the numbers 0 to n-1; answers that are missing are taken first. Empty: all tasks
            that have answers.
        comparisons: Maximum number of new comparisons, the most informative first. Empty: all that are possible.
        judge: Name of a Model Endpoint block that the judge is behind. Empty: HEADGATE_JUDGE_URL of the worker.
        judge_model: The judge, as its endpoint calls it. Empty: the block's served name, else HEADGATE_JUDGE_MODEL.
        judgements: How often each order of two answers is judged. Empty: the setting, 1.
        rubric: Name of a Judge Rubric block: what counts. Empty: the environments' own, where they have one.
        roster: Name of a Model Roster block, for answers that are missing. Empty: HEADGATE_ROSTER of the worker.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        campaign: What comparisons, and answers that are missing, are counted under.
        title: Heading of the page.
        settings: Any further setting by its name.

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
