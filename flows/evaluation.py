"""A fixed matrix of models, environments and instances, each once."""

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
        instances: Tasks per model and environment: those with the numbers 0 to n-1.
        environments: What to run. Empty: everything that is installed.
        models: Models of the roster by name, or by name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: HEADGATE_ROSTER of the worker, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block that keeps the trace of the run, for Perfetto. Empty: no trace is made.
        campaign: What the samples are counted under; another name runs everything anew.
        workers: Maximum number of episodes in progress. Empty: the setting, 20.
        settings: Any further setting by its name, e.g. {"request_timeout_s": 300}.
        executors: Where an environment's episodes run, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: HEADGATE_JOBQUEUE_URL of the worker.
        cluster: Name of a Ray Cluster block on whose nodes environments that run apart are played. Empty: what the
            settings environment_hosts and ray_address name, else the worker's own machine.
        repeats: Samples of each task, with another seed each, for pass@k and maj@k. Empty: the setting, 1.

    Returns:
        Counts of samples taken, scored, stored, and left to the next run.
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

    Samples count for `evaluate` of the same campaign, and those that it stored count here.

    Args:
        instances: Tasks per environment on which the models are ranked: those with the numbers 0 to n-1.
        indifference: Either of two models may come first when their means over all instances differ by this at most.
        environments: What to run. Empty: everything that is installed.
        models: Models of the roster by name, or by name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: HEADGATE_ROSTER of the worker, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block that keeps the trace of the run, for Perfetto. Empty: no trace is made.
        campaign: What the samples are counted under; another name runs everything anew.
        workers: Maximum number of episodes in progress. Empty: the setting, 20.
        settings: Any further setting by its name, e.g. {"request_timeout_s": 300}.
        executors: Where an environment's episodes run, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: HEADGATE_JOBQUEUE_URL of the worker.
        cluster: Name of a Ray Cluster block on whose nodes environments that run apart are played. Empty: what the
            settings environment_hosts and ray_address name, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left to the next run; what is known of every two models.
    """
    order = orchestration.SamplingOrder.of(locals(), settings={**settings, "indifference": indifference})
    return await orchestration.run_evaluation(order, instances)
