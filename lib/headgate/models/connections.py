"""Connections to endpoints: one pool for a whole campaign, none to a machine's own metadata service."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import AsyncExitStack
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp.abc import AbstractCookieJar

from headgate import __version__
from headgate.core import is_metadata_address

KEEPALIVE_S: Final = 4.0
"""Below the 5 s after which llama.cpp, uvicorn and Node close an idle connection."""


class Connections:
    """The HTTP sessions that all models of a campaign share. Open it with `async with`.

    `pooled` keeps connections alive between requests. `fresh` opens one for each request: where a kept connection
    turns out to have been closed by the server, the request goes out once more on a new one.
    """

    def __init__(self, *, connect_s: float, use_environment_proxy: bool) -> None:
        self._connect_s = connect_s
        self._use_environment_proxy = use_environment_proxy
        self._stack = AsyncExitStack()
        self.pooled: aiohttp.ClientSession
        self.fresh: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.pooled = await self._session(keepalive_timeout=KEEPALIVE_S)
        self.fresh = await self._session(force_close=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _session(self, **options: Any) -> aiohttp.ClientSession:
        jar: AbstractCookieJar = aiohttp.DummyCookieJar()  # a cookie of one model must not reach another
        return await self._stack.enter_async_context(
            aiohttp.ClientSession(
                # No limit here: request admission and `max_parallel` bound what is in flight.
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, socket_factory=_guarded_socket, **options),
                cookie_jar=jar,
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s, sock_connect=self._connect_s),
                trace_configs=[_note_reuse()],
                trust_env=self._use_environment_proxy,
                headers={"User-Agent": f"headgate/{__version__}"},
            )
        )


class Journey:
    """What happened to one request on its way: whether it went out on a connection that was used before."""

    __slots__ = ("was_reused",)

    def __init__(self) -> None:
        self.was_reused = False


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytearray:
    """Return the body, or its first `limit` bytes; the connection is closed with the rest unread."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) >= limit:
            del body[limit:]
            response.close()
            break
    return body


def _note_reuse() -> aiohttp.TraceConfig:
    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if isinstance(context.trace_request_ctx, Journey):
            context.trace_request_ctx.was_reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    return trace


def _guarded_socket(address: Any) -> socket.socket:
    """Return a socket for a resolved address; refuses those where clouds hand out credentials.

    The roster refuses such hosts by name already; this also holds for names that resolve to one.
    """
    family, kind, protocol, _, target = address
    host = ipaddress.ip_address(str(target[0]).split("%")[0])
    if is_metadata_address(host):
        raise PermissionError(errno.EACCES, f"link-local or metadata address {host} is never a model endpoint")
    return socket.socket(family=family, type=kind, proto=protocol)
