"""Opens the sources that a console watches, and serves the console."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, TypedDict, Unpack

from headgate.config import Settings
from headgate.console.access import Access
from headgate.console.app import console_app
from headgate.console.asking import PlacementSource, RunSource, ServiceSource
from headgate.console.discovery import JournalSource
from headgate.console.records import Records
from headgate.console.sources import Sources
from headgate.core import Secret
from headgate.net.asgi import serving
from headgate.net.authority import Authority
from headgate.net.clients import client_of
from headgate.net.listener import bound, url_of
from headgate.net.refusals import check_binding
from headgate.net.token_stores import open_tokens
from headgate.storage import JournalPlace
from headgate.telemetry import MonitorClient

DEFAULT_PORT: Final = 8770

_MOST_CONNECTIONS: Final = 512
_STOP_S: Final = 1
_TIMEOUT_S: Final = 5.0
_ELASTIC_TOKEN: Final = "HEADGATE_ELASTIC_TOKEN"  # noqa: S105 - the name of a variable


class Watched(TypedDict, total=False):
    """What a console watches.

    Attributes:
        runs: monitoring APIs of campaigns.
        journals: places of journals, in which runs publish the address of their monitoring API.
        jobqueues: servers of job queues.
        elastic: gateways of elastic pools; their token is in HEADGATE_ELASTIC_TOKEN.
        placement: journals of placement ledgers.
    """

    runs: Sequence[str]
    journals: Sequence[JournalPlace]
    jobqueues: Sequence[str]
    elastic: Sequence[str]
    placement: Sequence[Path]


@asynccontextmanager
async def opened_sources(settings: Settings, **watched: Unpack[Watched]) -> AsyncIterator[Sources]:
    """Yield the sources at these addresses.

    Args:
        settings: settings with the tokens that they require, `monitor_token` and `jobqueue_token`, and `console_hosts`.
        **watched: see `Watched`.

    Raises:
        InvalidInputError: an address is not valid.
    """
    async with AsyncExitStack() as stack:
        sources = Sources()
        for address in watched.get("runs", ()):
            monitor = await stack.enter_async_context(MonitorClient(settings, address))
            sources.add(RunSource(monitor, settings.journal))
        for place in watched.get("journals", ()):
            sources.add(journal := JournalSource(place, settings, sources))
            stack.push_async_callback(journal.close)
        for kind, addresses, token in (
            ("jobqueue", watched.get("jobqueues", ()), settings.jobqueue_token.get_secret_value()),
            ("elastic", watched.get("elastic", ()), os.environ.get(_ELASTIC_TOKEN, "")),
        ):
            for address in addresses:
                root = address.rstrip("/").removesuffix("/v1")
                client = await stack.enter_async_context(client_of(root, token, timeout_s=_TIMEOUT_S))
                sources.add(ServiceSource(kind, root, client))
        for path in watched.get("placement", ()):
            sources.add(PlacementSource(path))
        stack.push_async_callback(sources.close)
        yield sources


@asynccontextmanager
async def serve_console(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    tls: ssl.SSLContext | None = None,
    **watched: Unpack[Watched],
) -> AsyncIterator[str]:
    """Serve a console for as long as the context is open, and yield its address.

    Args:
        settings: the store, what `opened_sources` takes, and the tokens of the console: `console_token`, and the
            database `monitor_tokens`.
        host: address to listen on.
        port: 0 takes a free one.
        tls: context to serve HTTPS with; None serves HTTP.
        **watched: see `Watched`.

    Raises:
        InvalidSettingError: if `host` is beyond loopback and no token is set, or the address cannot be bound.
    """
    token = settings.console_token.get_secret_value()
    check_binding(
        host,
        "the console",
        is_guarded=bool(token) or bool(settings.monitor_tokens),
        next_step="Listen on 127.0.0.1, or set console_token or monitor_tokens.",
    )
    authority = Authority(open_tokens(settings.monitor_tokens), rate=None) if settings.monitor_tokens else None
    try:
        access = Access(Secret(token) if token else None, authority, host)
        async with opened_sources(settings, **watched) as sources, aclosing(Records(settings)) as records:
            listener = bound(host, port)
            app = console_app(settings, sources, records, access)
            async with serving(app, listener, name="console", most=_MOST_CONNECTIONS, stop_s=_STOP_S, tls=tls):
                try:
                    yield url_of(listener, tls)
                finally:
                    await sources.close()
    finally:
        if authority is not None:
            authority.close()
