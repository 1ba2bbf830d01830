"""Sampling by daily rates: one window of one environment, or on and on."""

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

    Samples fall due at the environment's daily rate; the journal and the store carry them from window to window.
    However the run ends - by its time, a cancellation, a signal - it drains first.

    Args:
        environment: What to sample, e.g. affine:sat. `headgate environments` lists what is installed.
        duration_s: How long to sample before what is in progress is drained.
        roster: Name of a Model Roster block. Empty: HEADGATE_ROSTER of the worker, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block that keeps the trace of the run, for Perfetto. Empty: no trace is made.
        campaign: What the samples are counted under. Runs of one campaign share a journal and never double a sample.
        rate_per_day: Samples per model and day, in place of the environment's own rate.
        workers: Maximum number of episodes in progress. Empty: the setting, 20.
        settings: Any further setting by its name, e.g. {"drain_timeout_s": 10}.
        judge: Name of a Model Endpoint block that judges answers where an environment needs it. Empty: what the
            settings judge_model and judge_url name; without them such environments are left out.
        executors: Where an environment's episodes run, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: HEADGATE_JOBQUEUE_URL of the worker.
        cluster: Name of a Ray Cluster block on whose nodes environments that run apart are played. Empty: what the
            settings environment_hosts and ray_address name, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left to the next run.
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
        environments: What to sample. Empty: everything that is installed.
        roster: Name of a Model Roster block. Empty: HEADGATE_ROSTER of the worker, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block that keeps the trace of the run, for Perfetto. Empty: no trace is made.
        campaign: What the samples are counted under. Runs of one campaign share a journal and never double a sample.
        rate_per_day: Samples per model and day in each environment, in place of the environments' own rates.
        workers: Maximum number of episodes in progress. Empty: the setting, 20.
        settings: Any further setting by its name, e.g. {"drain_timeout_s": 10}.
        judge: Name of a Model Endpoint block that judges answers where an environment needs it. Empty: what the
            settings judge_model and judge_url name; without them such environments are left out.
        executors: Where an environment's episodes run, e.g. robot:*=jobqueue for outside workers. Empty: as the
            settings say.
        jobqueue: Name of a Job Queue Server block, for outside workers. Empty: HEADGATE_JOBQUEUE_URL of the worker.
        cluster: Name of a Ray Cluster block on whose nodes environments that run apart are played. Empty: what the
            settings environment_hosts and ray_address name, else the worker's own machine.

    Returns:
        Counts of samples taken, scored, stored, and left to the next run.
    """
    order = orchestration.SamplingOrder.of(locals())
    return await orchestration.run_sampling(order, f"keep-{campaign}")
