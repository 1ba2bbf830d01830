"""A real Ray cluster of several nodes with logical GPUs, and a driver's connection to its ledger."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate.placement.cluster.client import Placement, connect
from headgate.placement.cluster.connection import NAMESPACE
from headgate.placement.cluster.tuning import TUNED
from headgate.placement.rules import PreemptionRules
from headgate_bench.placement import works
from headgate_bench.placement.works import Idle

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class PlainRay:
    """Times of plain Ray."""

    start_ms: list[float]  # from the request for an actor in a ready group until it answers
    # From the removal of a group until an actor in the next group, requested before, answers.
    hand_over_ms: list[float]


def plain_ray(count: int, gpus: int) -> PlainRay:
    """Start actors and hand over groups `count` times, on the cluster to which this process is connected."""
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


_STORE_BYTES: Final = 80_000_000
_VARIABLES: Final = ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_ADDRESS")


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster in use."""

    cluster: Cluster  # Ray's own handle on its nodes
    placement: Placement  # the driver's connection
    gpus: int  # logical GPUs of the cluster


@contextmanager
def ray_nodes(nodes: int, *, head_cpus: int = 2, cpus: int = 4, gpus: int = 2) -> Iterator[tuple[Cluster, Path]]:
    """Run a tuned cluster with a head and `nodes` nodes in its own folder; yield both."""
    kept = {name: os.environ.get(name) for name in _VARIABLES}
    folder = tempfile.mkdtemp(prefix="hg", dir="/tmp")
    os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.pop("RAY_ADDRESS", None)
    head = {
        "num_cpus": head_cpus,
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "_system_config": dict(TUNED),
    }
    try:
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=_STORE_BYTES)
            yield cluster, Path(folder)
        finally:
            ray.shutdown()
            cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray's own
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextmanager
def site(nodes: int, *, cancel_timeout_s: float) -> Iterator[Site]:
    """Run a tuned cluster with a head and `nodes` nodes of 4 CPUs and 2 GPUs, and connect to its ledger."""
    with ray_nodes(nodes) as (cluster, folder):
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False)
        # By value, so that no host imports the benchmarks: that takes a second during which work cannot be stopped.
        cloudpickle.register_pickle_by_value(works)
        with connect(journal=folder / "journal.db") as placement:
            placement.set_rules(_rules(cancel_timeout_s))
            yield Site(cluster, placement, 2 * nodes)
            placement.shutdown()


def _rules(cancel_timeout_s: float) -> PreemptionRules:
    """Return rules under which the same work can be stopped again at once, since only the stop is measured."""
    return PreemptionRules(
        cancel_timeout_s=cancel_timeout_s, min_runtime_s=0, patience_s=0, pair_interval_s=0, budget_interval_s=0
    )
