"""Serves the console until stopped."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from headgate.config import Settings
from headgate.console.access import Access
from headgate.console.app import console_app
from headgate.console.asking import opened_sources
from headgate.console.records import opened_records
from headgate.core import Secret
from headgate.net.asgi import serving
from headgate.net.authority import Authority
from headgate.net.listener import bound, url_of
from headgate.net.refusals import check_binding
from headgate.net.token_stores import open_tokens

DEFAULT_PORT: Final = 8770

_MOST_CONNECTIONS: Final = 512
_STOP_S: Final = 1


@asynccontextmanager
async def serve_console(
    settings: Settings,
    *,
    runs: Sequence[str] = (),
    jobqueues: Sequence[str] = (),
    elastic: Sequence[str] = (),
    placement: Sequence[Path] = (),
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Give the address of a console that is served for as long as the context is open.

    Args:
        settings: the store, the tokens of what is looked at (`opened_sources`), and those of the console:
            `console_token`, and the database `monitor_tokens`.
        runs: monitoring APIs of campaigns.
        jobqueues: servers of job queues.
        elastic: gateways of elastic pools.
        placement: journals of placement's ledgers.
        host: address to listen on.
        port: 0 takes a free one.
        tls: to serve HTTPS with.

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
        opened = opened_sources(settings, runs=runs, jobqueues=jobqueues, elastic=elastic, placement=placement)
        async with opened as sources, opened_records(settings) as records:
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
