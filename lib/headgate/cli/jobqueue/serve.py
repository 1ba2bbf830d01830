"""`headgate jobqueue serve`: the job queue over HTTP."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import say
from headgate.jobqueue.server import RunningServer, cloud_logging, load_server_settings, read_imports
from headgate.jobqueue.server import serve as serve_queue
from headgate.telemetry import Notices, senders_of


def serve(
    *,
    database: Annotated[str | None, Parameter(help="The job queue: sqlite:///path, postgresql://… or memory:.")] = None,
    host: Annotated[str | None, Parameter(help="Address to listen on; beyond loopback, tokens are needed.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None,
    legacy_routes: Annotated[
        bool | None, Parameter(negative="--no-legacy-routes", help="Serve workers of the legacy protocol.")
    ] = None,
    job_heartbeat_timeout_s: Annotated[
        float | None, Parameter(help="Lease of a job for legacy-protocol workers, in seconds.")
    ] = None,
    resource_heartbeat_timeout_s: Annotated[
        float | None, Parameter(help="Lease of a server for legacy-protocol workers.")
    ] = None,
    legacy_acquire_wait_s: Annotated[
        float | None, Parameter(help="Longest wait of the legacy protocol's acquire, then 429.")
    ] = None,
    import_: Annotated[
        tuple[Path, ...],
        Parameter(name="--import", help="jobs.json or resources.json to import first; may be repeated."),
    ] = (),
    google_cloud_logging: Annotated[
        bool, Parameter(help="Send the log to Google Cloud Logging, too (extra gcp).")
    ] = False,
    health_check_every_s: Annotated[
        float | None, Parameter(help="Interval of health checks of a policy server; 0: none.")
    ] = None,
) -> int:
    """Serve a job queue over HTTP until SIGTERM or Ctrl-C; requests in flight are answered first.

    Every setting has a variable `HEADGATE_JOBQUEUE_…`; a flag takes precedence.
    """
    settings = load_server_settings(
        {
            "database": database,
            "host": host,
            "port": port,
            "legacy_routes": legacy_routes,
            "job_heartbeat_timeout_s": job_heartbeat_timeout_s,
            "resource_heartbeat_timeout_s": resource_heartbeat_timeout_s,
            "legacy_acquire_wait_s": legacy_acquire_wait_s,
            "health_check_every_s": health_check_every_s,
        },
        environ=os.environ,
    )

    def announce(server: RunningServer) -> None:
        say(f"Job queue at {server.url}  (watch it: headgate console --jobqueue {server.url})")

    imports = read_imports(import_) if import_ else None
    secret = settings.notify_secret.get_secret_value()
    with contextlib.ExitStack() as stack:
        if google_cloud_logging:
            stack.enter_context(cloud_logging(os.environ))
        senders = senders_of(
            settings.notify_url, secret, settings.notify_command, "jobqueue", settings.notify_timeout_s
        )
        for sender in senders:
            stack.callback(sender.close)
        serve_queue(settings, announce, imports, Notices(senders).tell if senders else None)
    return 0
