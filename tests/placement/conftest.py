"""One small Ray cluster for all tests of placement: a head and a node with logical GPUs, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.placement.cluster.tuning import TUNED

_STORE_BYTES = 80_000_000


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[object]:
    """A tuned cluster; starting it takes about ten seconds, once."""
    import ray
    from ray.cluster_utils import Cluster

    # Sockets lie there, whose paths are short.
    folder = tempfile.mkdtemp(prefix="hg", dir="/tmp")
    kept = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED")}
    os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    head = {
        "num_cpus": 2,
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "_system_config": dict(TUNED),
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=6, num_gpus=2, object_store_memory=_STORE_BYTES)
        ray.init(address=cluster.address, namespace="headgate", log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(Path(folder), ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
