"""A private Ray cluster of two nodes, one with a logical GPU, until stopped: `python -m …demo.nodes ADDRESS_FILE`.

`ray start` cannot join a second node to a head that listens on loopback.
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
    """Start the nodes, write the head's address to a file, and wait for a signal."""
    # On a busy machine, slow nodes must not be declared dead.
    rules = LocalCluster().as_init()["_system_config"] | {"health_check_failure_threshold": 20}
    node: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False, "_system_config": rules})
    cluster.add_node(**node, num_gpus=1)
    write_whole({Path(address_file): str(cluster.address).encode()})
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
