"""The metrics stand on the page of Ray's exporter, under the names that dashboards ask for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.placement.metrics import PLACEMENT_METRICS, exported_name

PROGRAM = """
import json, socket, sys, time, urllib.request
import ray
from headgate.core import events
from headgate.placement.amounts import amounts
from headgate.placement.cluster.actor import PlacementMetrics
from headgate.placement.pool import Group, GroupShape, GroupState
from headgate.placement.request import Occupancy, PlacementRequest, Stage

with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, _temp_dir=sys.argv[1],
         log_to_driver=False, _metrics_export_port=port, _system_config={"metrics_report_interval_ms": 200})
shape = GroupShape((amounts(cpu=1),))
groups = {
    name: Group(name, "rlhf", shape, None, 1, state, ("n-1",), None, 1, 0.0)
    for name, state in (("g-1", GroupState.FREE), ("g-2", GroupState.QUARANTINED))
}
requests = {
    stage: Occupancy(PlacementRequest(stage, "rlhf", shape.bundles), "driver", 0.0, 1, stage)
    for stage in (Stage.WAITING, Stage.RUNNING)
}
tell = PlacementMetrics(groups, requests)
for event in (
    events.GroupCreated("g-1", "rlhf", True, ("n-1",), 0.02),
    events.GroupCreated("g-2", "rlhf", False, ("n-1",), 0.02),
    events.WorkQueued("reward", "rlhf", 8.5, "new"),
    events.WorkPlaced("rollout", "rlhf", "g-1", "reserved", 0.01),
    events.WorkStarted("rollout", "rlhf", "g-1", 0.02),
    events.StepRejected("train", "rlhf", "reserved", "no free one"),
    events.PreemptionPlanned("train", "rlhf", ("rollout",), 12.5, "label_based_preemption", 0.3),
    events.WorkPreempted("rollout", "rlhf", "train", "label_based_preemption", 40.0, 12.5, True, 0.25, True),
    events.GroupQuarantined("g-2", "rlhf", "x"),
    events.GroupCreationFailed("g-3", "rlhf", "no node"),
    events.WorkStarted("train", "rlhf", "g-1", 0.5),
    events.WorkLost("train", "rlhf", "node died", 1),
    events.WorkEnded("train", "rlhf", "failed", "lost too often", 1.0),
    events.DriverLost("driver", 1, False),
    events.PlacementDiffers("leaked group", "headgate-x", True),
):
    tell(event)
tell.show()
wanted = json.loads(sys.argv[2])
page = ""
for _ in range(300):
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError:
        pass
    if all(name in page for name in wanted):
        break
    time.sleep(0.1)
ray.shutdown()
print("\\n".join(line for line in page.splitlines() if "schedulemesh_" in line or "headgate_placement_" in line))
"""

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """What the exporter of a Ray of its own shows after one of every event that is counted."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    names = json.dumps([exported_name(metric) for metric in PLACEMENT_METRICS.values()])
    try:
        yield subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder), names],
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=110,
            check=True,
        ).stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_every_metric_is_on_the_page_under_the_name_that_is_documented(page: str) -> None:
    shown = {line.split("{")[0] for line in page.splitlines() if not line.startswith("#")}
    suffix = {"counter": "", "gauge": "", "histogram": "_bucket"}
    wanted = {exported_name(metric) + suffix[metric.kind] for metric in PLACEMENT_METRICS.values()}
    assert wanted - shown == set()


def test_a_series_carries_its_tags_and_its_value(page: str) -> None:
    (line,) = [row for row in page.splitlines() if row.startswith("ray_schedulemesh_preemption_count_total{")]
    assert 'pool="rlhf"' in line
    assert 'reason="label_based_preemption"' in line
    assert float(line.rsplit(" ", 1)[1]) == 1.0


def test_gauges_show_groups_by_state(page: str) -> None:
    rows = [row for row in page.splitlines() if row.startswith("ray_headgate_placement_groups{")]
    shown = {row.split('state="')[1].split('"')[0]: float(row.rsplit(" ", 1)[1]) for row in rows}
    assert {state: number for state, number in shown.items() if number} == {"free": 1.0, "quarantined": 1.0}
