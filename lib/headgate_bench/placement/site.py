"""A real Ray cluster of several nodes with logical GPUs, and a driver's connection to its ledger."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.cluster_utils import Cluster

from headgate.placement.cluster.client import Placement, connect
from headgate.placement.cluster.connecting import NAMESPACE
from headgate.placement.cluster.tuning import TUNED
from headgate.placement.rules import PreemptionRules
from headgate_bench.placement import works

_STORE_BYTES: Final = 80_000_000
_VARIABLES: Final = ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_ADDRESS")


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster in use.

    Attributes:
        cluster: Ray's own handle on its nodes.
        placement: the driver's connection.
        gpus: logical GPUs of the cluster.
    """

    cluster: Cluster
    placement: Placement
    gpus: int


@contextmanager
def site(nodes: int, *, cancel_timeout_s: float) -> Iterator[Site]:
    """Run a tuned cluster with `nodes` nodes of 4 CPUs and 2 GPUs beside a head, in a folder of its own."""
    kept = {name: os.environ.get(name) for name in _VARIABLES}
    folder = tempfile.mkdtemp(prefix="hg", dir="/tmp")
    os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.pop("RAY_ADDRESS", None)
    head = {
        "num_cpus": 2,
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "_system_config": dict(TUNED),
    }
    try:
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=_STORE_BYTES)
            ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False)
            # By value, so that no host imports the benchmarks: that takes a second, in which work cannot be stopped.
            cloudpickle.register_pickle_by_value(works)
            with connect(journal=Path(folder) / "journal.db") as placement:
                placement.set_rules(_rules(cancel_timeout_s))
                yield Site(cluster, placement, 2 * nodes)
                placement.shutdown()
        finally:
            ray.shutdown()
            cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray's own
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _rules(cancel_timeout_s: float) -> PreemptionRules:
    """Return rules that let the same work be stopped again at once: here the stop itself is measured."""
    return PreemptionRules(
        cancel_timeout_s=cancel_timeout_s, min_runtime_s=0, patience_s=0, pair_interval_s=0, budget_interval_s=0
    )
