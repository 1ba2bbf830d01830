"""A driver that is killed: `python -m tests.chaos.placement_driver ADDRESS NAME`."""

from __future__ import annotations

import sys
import time

from headgate.placement import amounts, connect
from tests.chaos.placement_work import Counting


def main(address: str, name: str) -> None:
    with connect(address, log_to_driver=False, driver=name) as placement:
        pool = placement.pool("chaos")
        for number in range(3):
            pool.submit(Counting, 10**9, resources=amounts(cpu=1, gpu=1), request_id=f"{name}-{number}", priority=2)
        print("submitted", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
