"""Drivers as processes of their own: `python -m tests.placement.client.drivers ADDRESS WHAT`."""

from __future__ import annotations

import os
import sys
import time

from headgate.placement.amounts import amounts
from headgate.placement.cluster.client import connect
from tests.placement.client.works import Counts


def main(address: str, what: str) -> None:
    with connect(address, log_to_driver=False, driver=f"driver-{what}") as placement:
        work = placement.pool("rlhf").submit(Counts, resources=amounts(cpu=1), request_id=f"work-{what}")
        work.wait_running(30)
        print("running", flush=True)
        if what == "dies":
            os._exit(1)
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
