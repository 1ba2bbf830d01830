"""A fixed matrix of models, environments and instances, sampled once each."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="evaluate", flow_run_name="evaluate {campaign}: {instances} instances")
async def evaluate(
    instances: p.Instances = 10,
    environments: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    models: list[p.Name] = [],  # noqa: B006
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "evaluation",
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006
    executors: p.Executors = "",
    jobqueue: p.Block = "",
    *,
    cluster: p.Block = "",
    repeats: p.Repeats | None = None,
) -> dict[str, Any]:
    """Run the same instances for every model in every environment, once each.

    Stored samples are not taken again: a cancelled run continues where it stopped, and more instances, models or
    environments add only what is new.

    Args:
        instances: Tasks per model and environment, numbered 0 to n-1.
        environments: Environments to run. Empty: all that are installed.
        models: Models of the roster, by name or name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: the worker's HEADGATE_ROSTER, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block that keeps the run's trace, for Perfetto. Empty: no trace.
        campaign: Name that the samples are counted under; a new name runs everything again.
        workers: Maximum number of episodes in progress. Empty: as the settings say (20).
        settings: Other settings by name, e.g. {"request_timeout_s": 300}.
        executors: Where environments run their episodes, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        cluster: Name of a Ray Cluster block; environments that run apart use its nodes. Empty: as the settings
            environment_hosts and ray_address say, else the worker's own machine.
        repeats: Samples per task, each with its own seed, for pass@k and maj@k. Empty: as the settings say (1).

    Returns:
        Counts of samples taken, scored, stored, and left for the next run.
    """
    order = orchestration.SamplingOrder.of(locals())
    return await orchestration.run_evaluation(order, instances)


@flow(name="rank", flow_run_name="rank {campaign}: {instances} instances")
async def rank(
    instances: p.Instances = 300,
    indifference: p.Indifference = 0.02,
    environments: list[p.Name] = [],  # noqa: B006 - as above
    models: list[p.Name] = [],  # noqa: B006
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "evaluation",
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006
    *,
    executors: p.Executors = "",
    jobqueue: p.Block = "",
    cluster: p.Block = "",
) -> dict[str, Any]:
    """Rank the models on the same instances, and stop sampling each one once it is ranked.

    `evaluate` reuses these samples in the same campaign, and this flow reuses those of `evaluate`.

    Args:
        instances: Tasks per environment on which the models are ranked, numbered 0 to n-1.
        indifference: Two models may rank in either order if their means over all instances differ by at most this.
        environments: Environments to run. Empty: all that are installed.
        models: Models of the roster, by name or name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: the worker's HEADGATE_ROSTER, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block that keeps the run's trace, for Perfetto. Empty: no trace.
        campaign: Name that the samples are counted under; a new name runs everything again.
        workers: Maximum number of episodes in progress. Empty: as the settings say (20).
        settings: Other settings by name, e.g. {"request_timeout_s": 300}.
        executors: Where environments run their episodes, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        cluster: Name of a Ray Cluster block; environments that run apart use its nodes. Empty: as the settings
            environment_hosts and ray_address say, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left for the next run; the finding for each pair of models.
    """
    order = orchestration.SamplingOrder.of(locals(), settings={**settings, "indifference": indifference})
    return await orchestration.run_evaluation(order, instances)
