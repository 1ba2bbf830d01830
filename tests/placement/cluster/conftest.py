"""Hands on the cluster that all tests of placement share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="session")
def gpu_node(ray_cluster: object) -> str:
    """Id of the node with GPUs."""
    import ray

    return next(str(node["NodeID"]) for node in ray.nodes() if node["Resources"].get("GPU"))


@pytest.fixture
async def hands(ray_cluster: object) -> AsyncIterator[object]:
    """Hands in the test's own event loop; their groups are removed after it."""
    from headgate.placement.cluster.ray_hands import RayHands

    hands = RayHands()
    yield hands
    for group_id in await hands.existing_groups():
        await hands.remove_group(group_id)
