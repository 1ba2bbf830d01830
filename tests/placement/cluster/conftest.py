"""An executor on the cluster that all tests of placement share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio


@pytest.fixture(scope="session")
def gpu_node(ray_cluster: object) -> str:
    """Id of the node with GPUs."""
    import ray

    return next(str(node["NodeID"]) for node in ray.nodes() if node["Resources"].get("GPU"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(ray_cluster: object) -> AsyncIterator[object]:
    """Executor in the module's event loop; all groups are removed after it."""
    from headgate.placement.cluster.executor import RayExecutor

    executor = RayExecutor()
    yield executor
    for group_id in await executor.existing_groups():
        await executor.remove_group(group_id)
