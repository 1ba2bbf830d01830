"""A Ray of two nodes, one with a logical GPU, until it is told to end: `python -m …demo.nodes ADDRESS_FILE`.

`ray start` would let no second node join a head that listens on loopback.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from headgate.durable.files import write_whole
from headgate.placement import LocalCluster


def main(address_file: str) -> None:
    """Start the nodes, write the address of their head into a file, and wait."""
    # Nodes of a busy machine must not be taken for dead.
    rules = LocalCluster().as_init()["_system_config"] | {"health_check_failure_threshold": 20}
    node: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False, "_system_config": rules})
    cluster.add_node(**node, num_gpus=1)
    write_whole({Path(address_file): str(cluster.address).encode()})
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
