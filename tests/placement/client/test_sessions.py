"""Ray sessions that come and go under a driver's connections."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import ray
from headgate.placement import connect
from headgate.placement.schedulemesh import SimpleScheduler

def begun():
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    scheduler = SimpleScheduler()
    assert scheduler.ensure_pool("sessions", resources={"cpu": 1.0})["success"]
    return scheduler

left_open = []
for _ in range(3):
    left_open.append(begun())
    ray.shutdown()  # with the call of a heartbeat under way
last = begun()
last.shutdown()
for scheduler in left_open:
    scheduler.shutdown()
assert ray.is_initialized(), "a session of somebody else was ended"
connect().shutdown()
print("all sessions have ended")
"""


@pytest.mark.long
def test_a_driver_may_leave_ray_and_join_it_again_with_schedulers_open(ray_cluster: Any) -> None:
    """In a process of its own, which a crash of Ray's would end."""
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, ray_cluster.address], capture_output=True, text=True, timeout=120, check=False
    )
    assert (said.returncode, said.stdout) == (0, "all sessions have ended\n"), said.stderr
    assert "does not answer" not in said.stderr
