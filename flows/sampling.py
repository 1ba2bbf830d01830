"""Sampling by daily rates: one environment for one window, or any number of them until cancelled."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="sample-environment", flow_run_name="{environment} for {duration_s:.0f} s")
async def sample_environment(
    environment: p.Name,
    duration_s: p.Seconds = 540.0,
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "main",
    rate_per_day: p.DailyRate | None = None,
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006 - the form shows it; never changed
    judge: p.Block = "",
    *,
    executors: p.Executors = "",
    jobqueue: p.Block = "",
    cluster: p.Block = "",
) -> dict[str, Any]:
    """Sample every model of the roster in one environment for one window.

    Samples become due at the environment's daily rate; the journal and the store carry state from window to window.
    The run drains before it ends, whether its time is up, it is cancelled, or it gets a signal.

    Args:
        environment: Environment to sample, e.g. affine:sat. `headgate environments` lists what is installed.
        duration_s: How long to sample, in seconds, before draining what is in progress.
        roster: Name of a Model Roster block. Empty: the worker's HEADGATE_ROSTER, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block that keeps the run's trace, for Perfetto. Empty: no trace.
        campaign: Name that samples are counted under. Runs of one campaign share a journal and never repeat a sample.
        rate_per_day: Samples per model per day, instead of the environment's own rate.
        workers: Maximum number of episodes in progress. Empty: as the settings say (20).
        settings: Other settings by name, e.g. {"drain_timeout_s": 10}.
        judge: Name of a Model Endpoint block that judges answers in environments that need a judge. Empty: as the
            settings judge_model and judge_url say; without these, such environments are skipped.
        executors: Where environments run their episodes, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        cluster: Name of a Ray Cluster block; environments that run apart use its nodes. Empty: as the settings
            environment_hosts and ray_address say, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left for the next run.
    """
    order = orchestration.SamplingOrder.of(locals(), environments=(environment,))
    return await orchestration.run_sampling(order, environment, duration_s=duration_s)


@flow(name="keep-sampling", flow_run_name="keep sampling {campaign}")
async def keep_sampling(
    environments: list[p.Name] = [],  # noqa: B006
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "main",
    rate_per_day: p.DailyRate | None = None,
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006
    judge: p.Block = "",
    *,
    executors: p.Executors = "",
    jobqueue: p.Block = "",
    cluster: p.Block = "",
) -> dict[str, Any]:
    """Sample every model of the roster in some or all environments until the run is cancelled.

    Args:
        environments: Environments to sample. Empty: all that are installed.
        roster: Name of a Model Roster block. Empty: the worker's HEADGATE_ROSTER, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block that keeps the run's trace, for Perfetto. Empty: no trace.
        campaign: Name that samples are counted under. Runs of one campaign share a journal and never repeat a sample.
        rate_per_day: Samples per model per day in each environment, instead of the environments' own rates.
        workers: Maximum number of episodes in progress. Empty: as the settings say (20).
        settings: Other settings by name, e.g. {"drain_timeout_s": 10}.
        judge: Name of a Model Endpoint block that judges answers in environments that need a judge. Empty: as the
            settings judge_model and judge_url say; without these, such environments are skipped.
        executors: Where environments run their episodes, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        cluster: Name of a Ray Cluster block; environments that run apart use its nodes. Empty: as the settings
            environment_hosts and ray_address say, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left for the next run.
    """
    order = orchestration.SamplingOrder.of(locals())
    return await orchestration.run_sampling(order, f"keep-{campaign}")
