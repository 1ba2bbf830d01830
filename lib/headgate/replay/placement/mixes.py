"""Generated mixes: work of several roles that arrives in bursts and runs for heavy-tailed times."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate.placement.amounts import GPU, amounts
from headgate.placement.request import Strategy
from headgate.replay.errors import InvalidTraceError
from headgate.replay.placement.jobs import Cluster, Job, Trace, trace_of

LONGEST_S: Final = 6 * 3600.0
"""Durations are cut here, so that one job in ten thousand does not decide a comparison."""

_RESTART_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """So many members of so many GPUs and CPUs; `weight` says how often beside the others of its role."""

    weight: float
    members: int
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of work.

    Attributes:
        name: value of its label `role`.
        priority: of its requests.
        share: of the GPU-seconds that are asked for.
        sizes: what its jobs take.
        median_s: of its durations.
        spread: sigma of their logarithm.
        checkpoint_every_s: seconds between its checkpoints; None when it keeps none.
        strategy: where the members of its gangs may lie.
        burst: how many arrive together, on average.
    """

    name: str
    priority: float
    share: float
    sizes: tuple[Size, ...]
    median_s: float
    spread: float
    checkpoint_every_s: float | None
    strategy: Strategy = "PACK"
    burst: float = 1.0

    @property
    def mean_gpu_s(self) -> float:
        """GPU-seconds of its average job, without the cut of long ones."""
        weights = sum(size.weight for size in self.sizes)
        gpus = sum(size.weight * size.members * size.gpus for size in self.sizes) / weights
        return gpus * self.median_s * math.exp(self.spread**2 / 2)


MIXES: Final = {
    "rlhf": (
        Role("train", 9.0, 0.25, (Size(3, 2, 2, 8), Size(1, 4, 2, 8)), 1200, 0.8, 300),
        Role("reward", 8.0, 0.15, (Size(1, 1, 1, 4),), 300, 1.0, 120, burst=4),
        Role("rollout", 3.0, 0.60, (Size(3, 1, 1, 4), Size(2, 1, 0.5, 2), Size(1, 1, 2, 8)), 900, 1.3, 300, burst=6),
    ),
    "gangs": (
        Role("train", 9.0, 0.45, (Size(2, 8, 1, 4), Size(1, 4, 4, 16), Size(1, 3, 6, 12)), 900, 1.0, 300, "SPREAD"),
        Role("reward", 8.0, 0.10, (Size(1, 2, 1, 4),), 300, 1.0, 120, burst=3),
        Role("rollout", 3.0, 0.45, (Size(1, 1, 1, 4),), 600, 1.3, 300, burst=8),
    ),
    "storm": (
        Role("urgent", 9.0, 0.25, (Size(1, 1, 1, 4), Size(1, 1, 2, 8)), 60, 1.0, None, burst=24),
        Role("batch", 2.0, 0.75, (Size(1, 1, 1, 4), Size(1, 1, 4, 16)), 3600, 0.8, 600, burst=2),
    ),
}
"""Name -> roles. `rlhf`: training gangs, rewards and rollouts; `gangs`: half of the work in gangs that fill nodes;
`storm`: bursts of short urgent work on a cluster full of long work."""


def generated(mix: str, cluster: Cluster, *, hours: float = 24.0, load: float = 0.9, seed: int = 0) -> Trace:
    """Return a mix whose work asks for `load` of the cluster's GPUs over `hours`; the same seed gives the same jobs.

    Bursts arrive as a Poisson process, the sizes of bursts are geometric, durations log-normal.

    Raises:
        InvalidTraceError: an unknown mix, or numbers that make none.
    """
    if mix not in MIXES:
        raise InvalidTraceError(f"there is no mix {mix!r}; there are {', '.join(MIXES)}")
    if not (0 < hours <= 10_000 and 0 < load <= 10):
        raise InvalidTraceError(f"hours must be in (0, 10 000] and load in (0, 10] (got {hours:g} and {load:g})")
    gpus = cluster.total.get(GPU) / 1000
    if not gpus:
        raise InvalidTraceError("a generated mix needs a simulated cluster with GPUs (got none)")
    jobs = [
        job
        for number, role in enumerate(MIXES[mix])
        for job in _jobs(role, hours * 3600, load * gpus, random.Random(f"{mix}/{seed}/{number}"))
    ]
    note = (
        f"Generated: mix {mix}, {hours:g} h, seed {seed}; work for {load:.0%} of {gpus:g} GPUs, {len(jobs)} jobs, "
        f"durations cut at {LONGEST_S / 3600:g} h."
    )
    return trace_of(f"mix {mix}", jobs, [note])


def _jobs(role: Role, span_s: float, gpus: float, chance: random.Random) -> Iterator[Job]:
    bursts_per_s = role.share * gpus / (role.mean_gpu_s * role.burst)
    at, number = chance.expovariate(bursts_per_s), 0
    while at < span_s:
        for _ in range(_geometric(chance, role.burst)):
            yield _job(role, f"{role.name}-{number}", at, chance)
            number += 1
        at += chance.expovariate(bursts_per_s)


def _job(role: Role, name: str, at: float, chance: random.Random) -> Job:
    size = chance.choices(role.sizes, [size.weight for size in role.sizes])[0]
    duration = min(LONGEST_S, max(1.0, chance.lognormvariate(math.log(role.median_s), role.spread)))
    member = amounts(cpu=size.cpus, gpu=size.gpus)
    return Job(
        name,
        round(at, 3),
        round(duration, 3),
        (member,) * size.members,
        role.priority,
        {"role": role.name},
        role.strategy,
        checkpoint_every_s=role.checkpoint_every_s,
        restart_s=_RESTART_S,
        estimated_s=round(duration, 3),
        kind=role.name,
    )


def _geometric(chance: random.Random, mean: float) -> int:
    if mean <= 1:
        return 1
    return 1 + int(math.log(1.0 - chance.random()) / math.log(1.0 - 1.0 / mean))
