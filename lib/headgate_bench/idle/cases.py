"""The cases of the idle suite: DataDesigner's, with its ids and parameters, and our own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

Mode = Literal["quick", "full"]

Shape = Literal["pipeline", "pressure", "peer", "requests", "cooldown"]
"""What a case runs.

- `pipeline`: seed -> heavy_i -> fast_i, i < fan-out, over rows that come in groups.
- `pressure`: seed -> a_pressured and z_open, two providers with one slot each; initially the first one's slot is taken.
- `peer`: tasks of a heavy group, and those of a peer that arrive a little later.
- `requests`: tasks that make no request, one, or many.
- `cooldown`: the pipeline of `pressure`, whose first provider answers 429 with Retry-After at first.
"""

OWN: Final = "headgate"
"""Sweep of the cases that are not in DataDesigner's suite."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    The fields up to `iterations` are DataDesigner's; the summary uses its names for them (`Case.document`).
    """

    name: str  # unique in its sweep
    sweep: str  # which dimension it varies
    records: int = 512  # rows
    buffer: int = 64  # rows of a group; a group's rows are opened together
    row_groups: int = 4  # maximum number of groups open at once
    capacity: int = 8  # concurrent tasks; model tasks may take half of the capacity (all of it in `pressure`)
    fanout: int = 4  # heavy and fast stages per row
    upstream_s: float = 0.003  # service time of a heavy stage
    # Service time of a fast stage, of the stages under pressure, of a peer's task, of a request.
    downstream_s: float = 0.0003
    request_s: float = 0.0  # how long the pressured provider is initially unavailable; time at which the peer arrives
    # Weight of a model stage's group; 0 stands for the model capacity. A group may hold twice as many units while
    # another one waits (DataDesigner's rule).
    weight: int = 0
    is_adaptive: bool = False  # whether the frontier adapts its width, starting from one group
    is_advised: bool = False  # whether stages of an open provider are preferred to those of a pressured one
    is_strict: bool = False  # whether stages of a pressured provider wait even if nothing else can run
    iterations: int = 1  # number of runs; in virtual time they must be equal
    # Maximum deviation of service times from their mean, as a share of it, drawn from the seed.
    spread: float = 0.0
    shape: Shape = "pipeline"  # what the case runs
    policy: Literal["strict_fair", "bounded_borrow"] = "strict_fair"  # policy of task admission
    # Share of the workers that is not lent while peers are expected; None for the policy's own.
    reserve: float | None = None
    is_control: bool = False  # whether it shows the effect of one missing adaptation; its wall time has no bar

    @property
    def id(self) -> str:
        """Its name in the summary."""
        return f"{self.sweep}/{self.name}"

    @property
    def generations(self) -> int:
        """Total number of generations: in DataDesigner's cases, two per row and unit of fan-out."""
        if self.shape == "peer":
            return self.records + self.peers
        if self.shape == "requests":
            return round(self.records * _MEAN_REQUESTS)
        return self.records * 2 * self.fanout

    @property
    def peers(self) -> int:
        """Tasks of the peer that arrives: half as many as the heavy group's."""
        return self.records // 2 if self.shape == "peer" else 0

    @property
    def model_capacity(self) -> int:
        """Units of `llm_wait`: half of the task capacity in a pipeline, all of it elsewhere (DataDesigner's rule)."""
        return max(1, self.capacity // 2 if self.shape == "pipeline" else self.capacity)

    @property
    def group_weight(self) -> int:
        """Weight of a model stage's group."""
        return self.weight or max(1, self.capacity // 2)

    @property
    def ideal_s(self) -> float:
        """Lower bound of the wall time for any scheduler, without a cost of its own.

        `pipeline`: work divided by the slots that can be busy at once, which the model capacity and the open rows'
        stages bound. `pressure` and `cooldown`: the blocked provider's work after it opens, or all work divided by the
        slots, whichever is longer. `peer` and `requests`: work divided by the slots.
        """
        if self.shape == "pipeline":
            work_s = self.records * self.fanout * (self.upstream_s + self.downstream_s)
            return work_s / min(self.model_capacity, self.row_groups * self.buffer * self.fanout)
        if self.shape == "peer":
            return (self.records * self.upstream_s + self.peers * self.downstream_s) / self.capacity
        if self.shape == "requests":
            return self.records * self.downstream_s * _MEAN_REQUESTS / self.model_capacity
        blocked_s = self.request_s + self.records * self.downstream_s
        return max(blocked_s, self.generations * self.downstream_s / min(2, self.model_capacity))

    def document(self) -> dict[str, object]:
        """Return the case under DataDesigner's names."""
        return {
            "name": self.name,
            "sweep": self.sweep,
            "record_count": self.records,
            "buffer_size": self.buffer,
            "row_group_concurrency": self.row_groups,
            "task_admission_capacity": self.capacity,
            "fanout_width": self.fanout,
            "upstream_latency_seconds": self.upstream_s,
            "downstream_latency_seconds": self.downstream_s,
            "scenario": _SCENARIOS[self.shape, self.is_adaptive],
            "request_latency_seconds": self.request_s,
            "model_stage_weight": self.weight,
            "adaptive_row_group_admission": self.is_adaptive,
            "request_pressure_advisory": self.is_advised,
            "iterations": self.iterations,
            "warmups": 0,
        }


_MEAN_REQUESTS: Final = 5 / 3
"""Mean of the cycle of 0, 1 and 4 requests per task."""

_SCENARIOS: Final = {
    ("pipeline", False): "real-pipeline-overlap",
    ("pipeline", True): "real-pipeline-overlap",
    ("pressure", False): "request-pressure-advisory",
    ("pressure", True): "adaptive-request-pressure",
    ("peer", False): "heavy-root-peer-arrival",
    ("requests", False): "dynamic-request-count",
    ("cooldown", False): "cross-provider-cooldown",
    ("cooldown", True): "cross-provider-cooldown",
}

_BASE: Final = Case("baseline-frontier", "baseline")


def cases_of(mode: Mode) -> tuple[Case, ...]:
    """Return the cases of a mode in the order in which they run; ids are unique."""
    return (*_sweeps(mode), *_stress(), *_adaptations(mode), *_own(mode))


def _sweeps(mode: Mode) -> list[Case]:
    is_quick = mode == "quick"
    rows = (64, 128, 256) if is_quick else (64, 128, 256, 512, 1024)
    row_groups = (1, 2, 4) if is_quick else (1, 2, 4, 8)
    buffers = (1, 16, 64) if is_quick else (1, 4, 16, 64, 256)
    capacities = (4, 8) if is_quick else (4, 8, 16)
    slim = replace(_BASE, buffer=1, fanout=1)
    weighted = replace(_BASE, sweep="custom-model-weight")
    return [
        *(replace(_BASE, name=f"rows-{n}", sweep="row-scale", records=n) for n in rows),
        *(replace(slim, name=f"row-groups-{n}", sweep="row-group-concurrency", row_groups=n) for n in row_groups),
        *(replace(_BASE, name=f"buffer-{n}", sweep="buffer-size", buffer=n) for n in buffers),
        *(replace(slim, name=f"capacity-{n}", sweep="llm-capacity", capacity=n) for n in capacities),
        replace(weighted, name="weight-custom-model-1", weight=1),
        replace(weighted, name="weight-model-capacity"),
    ]


def _stress() -> list[Case]:
    high = replace(_BASE, sweep="stress-shape", records=1024, capacity=16, upstream_s=0.006, iterations=3)
    return [
        replace(high, name="narrow-frontier-high-cap", buffer=1, row_groups=1, fanout=1),
        replace(high, name="wide-frontier-high-cap", row_groups=16),
    ]


def _adaptations(mode: Mode) -> list[Case]:
    frontier = replace(
        _BASE,
        sweep="adaptations",
        records=512 if mode == "quick" else 1024,
        buffer=1,
        row_groups=8,
        capacity=16,
        fanout=1,
        upstream_s=0.006,
    )
    pressed = replace(
        _BASE,
        sweep="adaptations",
        shape="pressure",
        records=32,
        buffer=32,
        row_groups=1,
        capacity=1,
        fanout=1,
        upstream_s=0.0,
        downstream_s=0.001,
        request_s=0.05,
    )
    both = replace(
        pressed,
        records=128 if mode == "quick" else 512,
        buffer=1,
        row_groups=8,
        capacity=4,
        is_adaptive=True,
        iterations=3,
    )
    return [
        replace(frontier, name="adaptive-row-groups-fixed-low", row_groups=1),
        replace(frontier, name="adaptive-row-groups-adaptive", is_adaptive=True),
        replace(frontier, name="adaptive-row-groups-fixed-high"),
        replace(pressed, name="request-pressure-control", is_control=True),
        replace(pressed, name="request-pressure-advisory", is_advised=True, is_strict=True),
        replace(both, name="adaptive-request-pressure-control", is_control=True),
        replace(both, name="adaptive-request-pressure-combined", is_advised=True),
    ]


def _own(mode: Mode) -> list[Case]:
    rows = 256 if mode == "quick" else 1024
    peer = Case(
        "heavy-root-peer-arrival-strict",
        OWN,
        shape="peer",
        records=512,
        buffer=512,
        # The heavy group's tasks are one row group, the peer's are the other.
        row_groups=2,
        fanout=1,
        upstream_s=0.5,
        downstream_s=0.05,
        request_s=0.05,
        weight=4,
        is_control=True,
    )
    bounded = replace(peer, name="heavy-root-peer-arrival-bounded", policy="bounded_borrow", is_control=False)
    requests = Case(
        "dynamic-request-count", OWN, shape="requests", records=3 * rows, buffer=64, fanout=1, downstream_s=0.001
    )
    cooldown = Case(
        "cross-provider-cooldown",
        OWN,
        shape="cooldown",
        records=rows,
        buffer=rows,
        row_groups=1,
        capacity=4,
        fanout=1,
        upstream_s=0.0,
        downstream_s=0.001,
        request_s=0.2,
        is_advised=True,
    )
    adaptations = {case.name: case for case in _adaptations(mode)}
    strict = adaptations["adaptive-request-pressure-combined"]
    varied = adaptations["adaptive-row-groups-adaptive"]
    advised = adaptations["request-pressure-advisory"]
    crowded = Case("hidden-waiters", OWN, records=rows, buffer=rows, row_groups=1, capacity=4, fanout=2)
    return [
        peer,
        bounded,
        replace(bounded, name="heavy-root-peer-arrival-reserve", reserve=0.375),
        requests,
        cooldown,
        replace(advised, name="request-pressure-passed-over", sweep=OWN, is_strict=False),
        replace(strict, name="adaptive-request-pressure-strict", sweep=OWN, is_strict=True),
        replace(varied, name="adaptive-row-groups-varied", sweep=OWN, spread=0.9, iterations=2),
        crowded,
    ]
