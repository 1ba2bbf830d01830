"""A training's checkpoints, each evaluated on the same tasks as it appears."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration
from headgate.run import FollowOrder


@flow(name="follow-checkpoints", flow_run_name="follow {place}")
async def follow_checkpoints(  # noqa: PLR0917 - the fields of a form
    place: p.Path,
    serve: p.Serve = {"engine": "llama.cpp"},  # noqa: B006 - the form shows it; never changed
    options: p.Options = {},  # noqa: B006
    pattern: p.Name = "*",
    marker: str = "",
    newest: p.Newest = 20,
    name: str = "",
    instances: p.Instances = 20,
    environments: list[p.Name] = [],  # noqa: B006
    once: bool = True,
    duration_s: p.Seconds | None = None,
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    judge: p.Block = "",
    campaign: p.Name = "checkpoints",
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006
) -> dict[str, Any]:
    """Evaluate every new checkpoint of a training on the same tasks, and publish the curve of scores by step.

    Headgate runs engines for each checkpoint while evaluating it. A scored checkpoint sends the event
    `checkpoint.scored`; one that is worse than the best before it, by the whole interval of their paired difference,
    sends `checkpoint.regressed`. Stored samples are not taken again.

    Args:
        place: Folder on the worker, or s3://bucket/prefix, that the training writes into.
        serve: How each checkpoint is served: the section `serve` of a roster's entry, without weights.
        options: Extra fields of every request, e.g. {"temperature": 0}.
        pattern: Pattern of checkpoint names, such as step_*; each name must contain a number.
        marker: File that marks a checkpoint as complete. Empty: it is complete when its size stops changing.
        newest: Evaluate at most this many of the newest checkpoints.
        name: Name of the model. Empty: the folder's name.
        instances: Tasks per environment, the same for every checkpoint.
        environments: Environments to run. Empty: all that are installed.
        once: Evaluate the checkpoints that exist now, then end. Otherwise follow until cancelled.
        duration_s: Start no new checkpoint after this many seconds. Empty: no limit.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block for the curve's page. Empty: a folder beside the samples.
        judge: Name of a Model Endpoint block that judges answers that need it. Empty: as the settings say.
        campaign: Name that the samples are counted under; a new name runs everything again.
        workers: Maximum number of episodes in progress. Empty: as the settings say (20).
        settings: Other settings by name.

    Returns:
        The curve, and which checkpoints were evaluated, failed or left out.
    """
    order = orchestration.SamplingOrder.of(locals(), reports="")
    followed = FollowOrder(
        place,
        serve=serve,
        instances=instances,
        name=name,
        pattern=pattern,
        marker=marker,
        newest=newest,
        entry={"options": options} if options else {},
    )
    return await orchestration.run_following(order, followed, once=once, duration_s=duration_s, published_in=reports)
