"""`headgate console`: one web page over everything that runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.options import StoreChoices
from headgate.cli.output import print_line
from headgate.cli.run import stop_on_signals
from headgate.console import serve_console
from headgate.net.tls import server_context
from headgate.telemetry import monitor_address


def console(
    choices: StoreChoices | None = None,
    *,
    run: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="Monitoring API of a campaign; may be repeated. By default that of the settings."),
    ] = (),
    jobqueue: Annotated[
        tuple[str, ...], Parameter(negative="", help="Server of a job queue; may be repeated. Also jobqueue_url.")
    ] = (),
    elastic: Annotated[
        tuple[str, ...], Parameter(negative="", help="Gateway of an elastic pool; may be repeated.")
    ] = (),
    placement: Annotated[
        tuple[Path, ...], Parameter(negative="", help="Journal of a placement ledger; may be repeated.")
    ] = (),
    host: Annotated[str | None, Parameter(help="Address to listen on; beyond loopback tokens are needed.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None,
) -> int:
    """Serve a web page over campaigns, job queues, elastic pools, placement and the store, until Ctrl-C.

    It shows what is wrong, since when and what holds it; with a token of the scope `steer` it also changes things.
    What does not answer is shown as down.
    """
    settings = (choices or StoreChoices()).load(console_host=host, console_port=port).settings
    queues = jobqueue or ((settings.jobqueue_url,) if settings.jobqueue_url else ())

    async def serve() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        async with serve_console(
            settings, runs=run or (monitor_address(settings),), jobqueues=queues, elastic=elastic, placement=placement,
            host=settings.console_host, port=settings.console_port,
            tls=server_context(settings.tls_certificate, settings.tls_key),
        ) as address:  # fmt: skip
            print_line(f"Console at {address}/")
            await stop.wait()

    asyncio.run(serve())
    return 0
