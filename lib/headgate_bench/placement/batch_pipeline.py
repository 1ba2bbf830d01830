"""`python -m headgate_bench.placement.batch_pipeline ADDRESS WORKERS`: a batch pipeline of Ray Data on a cluster.

Prints the number of each finished batch and the time, until it is killed.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import ray.data

_BATCH_S: Final = 0.05


def slept(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch after sleeping for a while."""
    time.sleep(_BATCH_S)
    return batch


def main(address: str, workers: int) -> None:
    """Run batches on the cluster."""
    ray.init(address=address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(10_000_000, override_num_blocks=10_000)
    done = rows.map_batches(slept, batch_size=1_000, num_cpus=1, concurrency=workers)
    for count, _ in enumerate(done.iter_batches(batch_size=1_000)):
        print(count, time.time(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
