"""Where the engines of a run's models start, according to the settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from headgate.config import Settings
from headgate.run import EngineHosts, HostCluster

_PATIENCE: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""How long a process outlives the loss of its cluster's head, by default a minute; Ray reads it at start."""

_PATIENCE_S: Final = 86_400


@asynccontextmanager
async def engine_hosts(settings: Settings, cluster: HostCluster | None = None) -> AsyncIterator[EngineHosts | None]:
    """Yield the host for engines on a Ray cluster, `cluster` or the settings'; None if they start on this machine.

    Raises:
        MissingExtraError: if the settings name Ray and it is not installed.
    """
    if settings.engine_hosts == "local":
        yield None
        return
    os.environ.setdefault(_PATIENCE, str(_PATIENCE_S))
    from headgate.orchestration.elastic.hosts import RayHosts  # noqa: PLC0415 - Ray takes a second to import

    hosts = RayHosts(cluster or HostCluster(settings.ray_address, settings.ray_pool))
    try:
        yield hosts
    finally:
        await hosts.close()
