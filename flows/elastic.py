"""What an elastic pool would have cost: loads replayed under several scaling policies."""

from __future__ import annotations

from functools import partial
from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration
from headgate_replay.elastic import ReplayOrder
from headgate_replay.elastic.findings import replay_findings, replay_steps


@flow(name="elastic-report", flow_run_name="elastic policies on {trace}")
async def elastic_report(
    trace: p.Path = "ramp",
    *,
    service_times: str = "",
    model: p.Name = "llama2-70b",
    hardware: p.Name = "h100-80gb",
    gpus: p.Gpus = 8,
    policies: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    frontiers: list[p.Name] = [],  # noqa: B006
    starts_s: list[p.StartSeconds] = [1.0, 30.0],  # noqa: B006
    slots: p.Slots = 8,
    max_workers: p.ElasticWorkers = 16,
    awake: p.ElasticWorkers | None = None,
    copies: p.Copies = 1,
    scale: p.Scale = 1.0,
    seed: p.Seed = 0,
    reports: p.Block = "",
) -> dict[str, Any]:
    """Replay a load through the elastic pool in virtual time, under Headgate's policies and those of other systems.

    The pool is the one that serves real requests; engines and time are simulated. The usual policies on the ramp take
    a minute or two. The same parameters give the same figures on every worker.

    Args:
        trace: A generated hour: ramp, smooth, bursty, daily, flash or on-off. Or a file on the worker: CSV in the form
            of Azure's traces, or JSON lines in that of Mooncake's.
        service_times: For a trace: table of the time per token, such as splitwise-sim's perf_model.csv.
        model: Model in that table.
        hardware: Hardware in that table.
        gpus: GPUs per worker in that table.
        policies: Policies to compare, e.g. predictive. Empty: the usual ones.
        frontiers: Policies to replay at every setting of their tuning parameter as well.
        starts_s: Start-up times of a worker in seconds; each is replayed separately.
        slots: Requests that a worker runs at once.
        max_workers: Number of workers.
        awake: Workers awake at first. Empty: 1; for a trace, as many as its first minute needs.
        copies: For a trace: factor by which to multiply its users.
        scale: For a generated hour: factor by which to stretch its times.
        seed: Random seed of a generated hour and of copies.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.

    Returns:
        Cost and waiting of each policy by start time, and where the page is.
    """
    order = ReplayOrder(**{name: value for name, value in locals().items() if name != "reports"})
    return await orchestration.run_findings(partial(replay_steps, order), replay_findings, reports)
