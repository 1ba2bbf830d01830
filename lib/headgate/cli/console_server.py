"""`headgate console`: one web page for everything that runs."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from pydantic import SecretStr

from headgate.cli.options import StoreChoices
from headgate.cli.output import say
from headgate.cli.run import stop_on_signals
from headgate.config import Settings, load_settings
from headgate.console import serve_console
from headgate.durable.databases import PostgresAddress
from headgate.net.listener import bound, free_port
from headgate.net.tls import server_context
from headgate.processes import child_process

_log = logging.getLogger("headgate.console")

_HANDED_ON: Final = (
    "store", "journal", "monitor_host", "monitor_advertised_host", "monitor_token", "monitor_tokens", "console_host",
    "console_hosts", "console_token", "jobqueue_url", "jobqueue_token", "tls_certificate", "tls_key",
)  # fmt: skip
"""Settings that a console beside a run takes over from it."""

_STOP_S: Final = 3.0


def console(
    choices: StoreChoices | None = None,
    *,
    run: Annotated[
        tuple[str, ...],
        Parameter(help="Monitoring API of a campaign; may be repeated. Without it, runs are found in the journal."),
    ] = (),
    journal: Annotated[
        tuple[str, ...],
        Parameter(help="Folder or postgresql:// address of journals whose runs are all watched; may be repeated."),
    ] = (),
    jobqueue: Annotated[
        tuple[str, ...], Parameter(help="Server of a job queue; may be repeated. Also jobqueue_url.")
    ] = (),
    elastic: Annotated[tuple[str, ...], Parameter(help="Gateway of an elastic pool; may be repeated.")] = (),
    placement: Annotated[tuple[Path, ...], Parameter(help="Journal of a placement ledger; may be repeated.")] = (),
    host: Annotated[str | None, Parameter(help="Address to listen on; beyond loopback, tokens are needed.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None,
) -> int:
    """Serve the console, a web page on campaigns, job queues, elastic pools, placement and the store, until Ctrl-C.

    It shows what is wrong, since when, and why. With a token of the scope `steer`, you can make changes there. A part
    that does not answer is shown as down.
    """
    settings = (choices or StoreChoices()).load(console_host=host, console_port=port).settings
    journals = [load_settings({"journal": place}, environ={}, file=None).settings.journal for place in journal]
    queues = jobqueue or ((settings.jobqueue_url,) if settings.jobqueue_url else ())

    async def serve() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        async with serve_console(
            settings, runs=run, journals=journals or ([] if run else [settings.journal]), jobqueues=queues,
            elastic=elastic, placement=placement,
            host=settings.console_host, port=settings.console_port,
            tls=server_context(settings.tls_certificate, settings.tls_key),
        ) as address:  # fmt: skip
            say(f"Console at {address}/")
            await stop.wait()

    asyncio.run(serve())
    return 0


@asynccontextmanager
async def console_beside(settings: Settings) -> AsyncIterator[None]:
    """Serve the console of a run, and of others in its journal, in a separate process until the context ends.

    A separate process, so that pages take no time from the run. It ends with this one, however that ends.

    Raises:
        InvalidSettingError: its address cannot be bound, for example because another run's console uses it.
    """
    bound(settings.console_host, settings.console_port).close()
    serving = asyncio.create_task(_served_beside(settings))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait({serving})


async def _served_beside(settings: Settings) -> None:
    port = settings.console_port or free_port()
    environ = {**os.environ, **{f"HEADGATE_{name.upper()}": _text(getattr(settings, name)) for name in _HANDED_ON}}
    command = [sys.executable, "-m", "headgate.cli", "console", "--port", str(port)]
    log = Path(".headgate/console.log")
    async with child_process(command, environ=environ, folder=Path.cwd(), log=log, grace_s=_STOP_S) as child:
        scheme, host = "https" if settings.tls_certificate else "http", settings.console_host
        say(f"Console at {scheme}://{f'[{host}]' if ':' in host else host}:{port}/", stderr=True)
        await child.ended()
        _log.warning("the console has ended, the run goes on; last lines of %s: %s", log, child.last_lines(3))


def _text(setting: object) -> str:
    match setting:
        case SecretStr():
            return setting.get_secret_value()
        case PostgresAddress():
            return setting.url()
        case tuple():
            return ",".join(setting)
    return str(setting)
