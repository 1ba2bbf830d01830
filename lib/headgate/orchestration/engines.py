"""Where the engines of a run's models are started, as the settings say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.config import Settings
from headgate.run import EngineHosts, HostCluster


@asynccontextmanager
async def engine_hosts(settings: Settings, cluster: HostCluster | None = None) -> AsyncIterator[EngineHosts | None]:
    """Give what starts engines on a Ray cluster; None where they are started on this machine.

    Args:
        settings: say which of the two.
        cluster: in place of the one that the settings name.

    Raises:
        MissingExtraError: the settings name Ray, which is not installed.
    """
    if settings.engine_hosts == "local":
        yield None
        return
    from headgate.orchestration.elastic.hosts import RayHosts  # noqa: PLC0415 - Ray takes a second to import

    hosts = RayHosts(cluster or HostCluster(settings.ray_address, settings.ray_pool))
    try:
        yield hosts
    finally:
        await hosts.close()
