"""The same with Ray alone: an actor in a group that is there, and a group handed from one to the next."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate_bench.placement.works import Idle

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class PlainRay:
    """What was measured.

    Attributes:
        start_ms: from asking for an actor in a ready group until it answers.
        hand_over_ms: from removing a group until the actor answers for which the next group had been asked before.
    """

    start_ms: list[float]
    hand_over_ms: list[float]


def plain_ray(count: int, gpus: int) -> PlainRay:
    """Start actors and hand groups over `count` times, on the cluster that this process is connected to."""
    start_ms, hand_over_ms = [], []
    for _ in range(count):
        group = _group(1)
        ray.get(group.ready(), timeout=_PATIENCE_S)
        began = time.perf_counter()
        actor = _actor(group)
        start_ms.append(_answered_ms(actor, began))
        remove_placement_group(group)
    for _ in range(count):
        first = _group(gpus)
        ray.get(first.ready(), timeout=_PATIENCE_S)
        second = _group(gpus)
        began = time.perf_counter()
        remove_placement_group(first)
        hand_over_ms.append(_answered_ms(_actor(second), began))
        remove_placement_group(second)
    return PlainRay(start_ms, hand_over_ms)


def _group(bundles: int) -> Any:
    return placement_group([{"CPU": 1, "GPU": 1}] * bundles, strategy="PACK")


def _actor(group: Any) -> Any:
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
    return ray.remote(Idle).options(num_cpus=1, num_gpus=1, scheduling_strategy=strategy).remote()


def _answered_ms(actor: Any, began: float) -> float:
    ray.get(actor.ping.remote(), timeout=_PATIENCE_S)
    return 1_000 * (time.perf_counter() - began)
