"""Reads files of jobs: a user's own jobs, and the GPU pods of a production cluster.

A user's file has one JSON object per line:

    {"id": "a", "arrived_s": 0, "duration_s": 60, "gpus": 1, "cpus": 4, "priority": 9, "labels": {"role": "train"}}

`id`, `arrived_s` and `duration_s` are required, and at least one of `gpus`, `cpus` and `memory_gib`; `count` makes a
gang of that many equal members, and `strategy` tells how they are placed on nodes.

The pods are `openb_pod_list_default.csv` of Alibaba's cluster-trace-gpu-v2023, in its folder csv at
https://github.com/alibaba/clusterdata. The list has quality-of-service classes, GPU shares and times of creation and
deletion. It was recorded on 1 213 nodes and fills only a hundredth of them, so it is replayed on a few nodes; every
table tells how many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.placement.amounts import CPU, GPU, MEBIBYTE, MEMORY, MILLI, amounts, of_units
from headgate.placement.request import Strategy
from headgate_replay.files import Form
from headgate_replay.placement.jobs import InvalidTraceError, Job, Trace, trace_of

_JOBS: Final = Form("file of jobs", InvalidTraceError)
_PODS: Final = Form(
    "list of pods",
    InvalidTraceError,
    "Download openb_pod_list_default.csv from cluster-trace-gpu-v2023/csv of https://github.com/alibaba/clusterdata "
    "and give its path.",
)
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MAX_MEMBERS: Final = 256


class JobLine(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid", strict=False)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    arrived_s: Seconds
    duration_s: Positive
    gpus: Seconds = 0
    cpus: Seconds = 0
    memory_gib: Seconds = 0
    count: Annotated[int, Field(ge=1, le=_MAX_MEMBERS)] = 1
    strategy: Strategy = "PACK"
    priority: Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)] = 5.0
    labels: dict[str, str] = Field(default_factory=dict)
    preemptible: bool = True
    checkpoint_every_s: Positive | None = None
    restart_s: Seconds = 0
    estimated_s: Seconds | None = None
    kind: str | None = None

    @model_validator(mode="after")
    def _takes_something(self) -> JobLine:
        if not (self.gpus or self.cpus or self.memory_gib):
            raise ValueError("takes nothing: give gpus, cpus or memory_gib")
        return self

    def job(self) -> Job:
        """Return the job that the line describes; schedulers are told its duration unless `estimated_s` is given."""
        member = amounts(self.cpus, self.gpus, int(self.memory_gib * 1024) * MEBIBYTE)
        return Job(
            self.id,
            self.arrived_s,
            self.duration_s,
            (member,) * self.count,
            self.priority,
            self.labels,
            self.strategy,
            checkpoint_every_s=self.checkpoint_every_s,
            restart_s=self.restart_s,
            preemptible=self.preemptible,
            estimated_s=self.duration_s if self.estimated_s is None else self.estimated_s,
            kind=self.kind or next(iter(self.labels.values()), f"priority {self.priority:g}"),
        )


def read_json_lines(path: Path) -> Trace:
    """Return the jobs of a file.

    Raises:
        InvalidTraceError: if the file cannot be read, or a line is not a job; the message names the line and field.
    """
    return trace_of(path.name, _JOBS.json_lines(path, JobLine, JobLine.job))


PRIORITY_OF_QOS: Final = {"Guaranteed": 9.0, "LS": 8.0, "Burstable": 5.0, "BE": 2.0}
"""Class -> priority: latency-sensitive pods are high-priority work, best-effort pods make room for them."""

_NUMBERS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
_START_SHARE: Final = 0.005


def read_openb(
    path: Path,
    *,
    longest_s: float | None = None,
    checkpoint_every_s: float | None = 600.0,
    restart_s: float = 30.0,
) -> Trace:
    """Return the pods of the list as jobs.

    Pods that ran longer than `longest_s` are left out. The list tells neither how often jobs save their progress nor
    what a restart costs, so both are arguments.

    Raises:
        InvalidTraceError: if the file cannot be read, lacks a column, or a pod has impossible values.
    """
    pods = _pods(path)
    start = int(pods["creation_time"].quantile(_START_SHARE, "lower") or 0)
    there = pods.with_columns(
        arrived=(pl.col("creation_time") - start).clip(0), life=pl.col("deletion_time") - pl.col("creation_time")
    ).filter(pl.col("deletion_time") >= start)
    jobs = there if longest_s is None else there.filter(pl.col("life") <= longest_s)
    notes = [
        (
            f"The list's first {start:,} s, in which {_START_SHARE:.1%} of its pods were created, are left out, and "
            f"with them {pods.height - there.height} pods that had ended by then."
        ),
        "Class -> priority: " + ", ".join(f"{q} {p:g}" for q, p in PRIORITY_OF_QOS.items()) + ".",
    ]
    if longest_s is not None:
        hours = longest_s / 3600
        notes.append(f"{there.height - jobs.height} pods that lived longer than {hours:g} h are left out.")
    notes.append(
        "The work of a pod is its life from creation to deletion. Assumed for all: "
        + (f"a checkpoint every {checkpoint_every_s:g} s" if checkpoint_every_s else "no checkpoints")
        + f", {restart_s:g} s per restart."
    )
    found = [
        Job(
            job_id=name,
            arrived_s=float(arrived),
            duration_s=float(max(1, end - start - arrived)),
            bundles=(of_units({CPU: cpu, MEMORY: memory * MEBIBYTE, GPU: share if gpus == 1 else gpus * MILLI}),),
            priority=PRIORITY_OF_QOS[qos],
            labels={"qos": qos},
            checkpoint_every_s=checkpoint_every_s,
            restart_s=restart_s,
            estimated_s=float(max(1, end - start - arrived)),
            kind=qos,
        )
        for name, cpu, memory, gpus, share, qos, end, arrived in jobs.select(
            "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "deletion_time", "arrived"
        ).iter_rows()
    ]
    return trace_of(path.name, found, notes)


def _pods(path: Path) -> pl.DataFrame:
    written = _PODS.csv(path, ("name", *_NUMBERS, "qos"))
    pods = written.with_columns(pl.col(_NUMBERS).cast(pl.Int64, strict=False))
    size = pods.select(pl.max_horizontal("cpu_milli", "memory_mib", "num_gpu")).to_series()
    for name in _NUMBERS:
        _PODS.check(path, written, pods[name] < 0, name, "a whole number >= 0")
    for name, wrong, rule in (
        ("name", pods["name"].is_null(), "given"),
        ("qos", ~pods["qos"].is_in([*PRIORITY_OF_QOS]), f"one of {', '.join(PRIORITY_OF_QOS)}"),
        ("deletion_time", pods["deletion_time"] < pods["creation_time"], "creation_time or later"),
        ("num_gpu", size == 0, "> 0 where cpu_milli and memory_mib are 0"),
    ):
        _PODS.check(path, written, wrong, name, rule)
    return pods
