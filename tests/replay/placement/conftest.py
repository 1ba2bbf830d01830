"""Small traces and clusters."""

from __future__ import annotations

from typing import Any

from headgate.placement.amounts import amounts
from headgate_replay.placement import Cluster, Job, Latencies, Outcome, Trace, cluster_of, trace_of, waited_s
from headgate_replay.placement.engine import Policy, replayed

AT_ONCE = Latencies(create_s=0.0, start_s=0.0, stop_s=0.0, remove_s=0.0, untuned_s=0.0)


def small(nodes: int = 1, gpus: int = 4, latencies: Latencies = AT_ONCE, **more: Any) -> Cluster:
    return cluster_of(nodes, gpus, cpus=64, memory_gib=64, latencies=latencies, **more)


def job(name: str, at: float, lasts: float, gpus: float = 1, *, members: int = 1, **more: Any) -> Job:
    defaults: dict[str, Any] = {"checkpoint_every_s": None, "restart_s": 0.0, "estimated_s": lasts, "kind": "k"}
    return Job(name, at, lasts, (amounts(cpu=1, gpu=gpus),) * members, **(defaults | more))


def trace(*jobs: Job) -> Trace:
    return trace_of("test", jobs)


def waits(jobs: Trace, cluster: Cluster, policy: Policy) -> dict[str, float | None]:
    return waits_of(jobs, replayed(jobs, cluster, policy))


def waits_of(jobs: Trace, outcome: Outcome) -> dict[str, float | None]:
    return {each.job_id: wait for each, wait in zip(jobs.jobs, waited_s(jobs, outcome), strict=True)}
