"""The monitoring API of a campaign, as its settings want it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from headgate.config import Settings
from headgate.core import Secret
from headgate.core.events import Emit, MonitorStarted
from headgate.core.status import CampaignStatus

if TYPE_CHECKING:
    from headgate.telemetry import Progress, Questions


async def serve_monitoring(
    stack: AsyncExitStack,
    settings: Settings,
    status: Callable[[], CampaignStatus] | Progress,
    registry: CollectorRegistry,
    questions: Questions,
    emit: Emit,
) -> None:
    """Serve the monitoring API until `stack` ends; raises HeadgateError where it cannot."""
    # FastAPI is imported by those who serve.
    from headgate.net.authority import Authority, Caller  # noqa: PLC0415
    from headgate.net.refusals import token_of  # noqa: PLC0415
    from headgate.net.tls import server_context  # noqa: PLC0415
    from headgate.net.tokens import Scope, open_tokens  # noqa: PLC0415
    from headgate.telemetry import serve_monitor  # noqa: PLC0415

    identify = None
    if settings.monitor_tokens:
        authority = Authority(open_tokens(settings.monitor_tokens))
        stack.callback(authority.close)

        async def identify(authorization: str) -> bool:
            caller = await authority.identify_async(token_of(authorization), time.time())
            return isinstance(caller, Caller) and caller.has(Scope.READ) and caller.teams is None

    token = settings.monitor_token.get_secret_value()
    server = await stack.enter_async_context(
        serve_monitor(
            status, registry, settings.monitor_host, settings.monitor_port, Secret(token) if token else None, questions,
            identify=identify, tls=server_context(settings.tls_certificate, settings.tls_key),
        )
    )  # fmt: skip
    emit(MonitorStarted(server.address))
