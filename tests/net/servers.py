"""Every HTTP server of Headgate, listening on a real port, for tests that hold of all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from headgate.jobqueue.server import ServerSettings, running_server
from headgate.models.endpoint import serve
from headgate.net.tls import server_context
from headgate.telemetry import new_registry, serve_monitor
from tests.elastic.gateway.door import opened
from tests.telemetry.factories import status

Serves = Callable[[Path], AbstractAsyncContextManager[str]]
"""Serves in a folder, with the certificate and key that lie there, if any; gives the address."""


def _files(folder: Path) -> dict[str, str]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    return {"tls_certificate": str(certificate), "tls_key": str(key)} if certificate.exists() else {}


def _tls(folder: Path) -> ssl.SSLContext | None:
    files = _files(folder)
    return server_context(files["tls_certificate"], files["tls_key"]) if files else None


@asynccontextmanager
async def _jobqueue(folder: Path) -> AsyncIterator[str]:
    settings = ServerSettings(
        database="memory:", port=0, statistics_every_s=0, health_check_every_s=0, **_files(folder)
    )
    async with running_server(settings) as server:
        yield server.url


@asynccontextmanager
async def _monitor(folder: Path) -> AsyncIterator[str]:
    async with serve_monitor(status, new_registry(status), port=0, tls=_tls(folder)) as server:
        yield server.address


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[str]:
    files = _files(folder)
    variables = {f"HEADGATE_{name.upper()}": path for name, path in files.items()}
    async with opened(environ=variables) as door:
        yield door.gateway.url


@asynccontextmanager
async def _endpoint(folder: Path) -> AsyncIterator[str]:
    async with serve(tls=_tls(folder)) as endpoint:
        yield endpoint.url


SERVERS: dict[str, Serves] = {
    "jobqueue": _jobqueue,
    "monitor": _monitor,
    "gateway": _gateway,
    "endpoint": _endpoint,
}
CHANGES = {
    "jobqueue": "/v1/claims",
    "monitor": "/status",
    "gateway": "/v1/chat/completions",
    "endpoint": "/v1/chat/completions",
}
"""A route of each that takes a POST, or whose POST is refused."""


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.partition("//")[2].rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))
