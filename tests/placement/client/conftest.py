"""A ledger on the shared cluster, which is ended with all it has made after the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from headgate.placement.amounts import amounts
from headgate.placement.cluster.client import Placement, connect
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.rules import PreemptionRules


@pytest.fixture(scope="module")
def placement(ray_cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placement]:
    journal: Path = tmp_path_factory.mktemp("placement") / "journal.sqlite"
    placement = connect(journal=journal, settings=LedgerSettings(driver_lease_s=4.0, idle_group_s=1.0))
    placement.set_rules(
        PreemptionRules(
            min_runtime_s=0.0,
            budget_share=1.0,
            budget_interval_s=0.0,
            pair_interval_s=0.0,
            cancel_timeout_s=10.0,  # a victim on a busy machine is not killed before its state is saved
        )
    )
    yield placement
    placement.shutdown()
    groups = ray.util.placement_group_table().values()
    assert [
        group["name"] for group in groups if group["state"] != "REMOVED" and group["name"].startswith("headgate-")
    ] == []
    assert [name for name in ray.util.list_named_actors() if name.startswith("headgate-")] == []


@pytest.fixture
def pool(placement: Placement) -> Iterator[PlacementPool]:
    """A pool of two CPUs with one reserved group; its work is gone after the test."""
    pool = placement.pool("rlhf", quota=amounts(cpu=2), reserved=[amounts(cpu=1)])
    yield pool
    for view in pool.requests():
        placement.cancel(view.request_id)
        placement.work(view.request_id).wait(20)
