"""A Prefect worker of one's own, beside a private server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from headgate.orchestration.children import ChildProcess, child_process
from headgate.orchestration.work_pool import POOL

DRAIN_S: Final = 30.0
"""How long the flow runs of a worker may drain when it ends; Prefect's own worker gives them as much."""


@asynccontextmanager
async def worker(
    folder: Path, environ: Mapping[str, str], *, pool: str = POOL, drain_s: float = DRAIN_S
) -> AsyncIterator[ChildProcess]:
    """Give a running `prefect worker` for a process pool; its flow runs drain and end with it.

    Args:
        folder: where it runs, and where its log goes.
        environ: a client's environment, see `PrivateServer.environ`, with what the flow runs need.
        pool: whose runs it takes.
        drain_s: what is left after this is killed.
    """
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    environ = dict(environ) | {"PREFECT_WORKER_QUERY_SECONDS": "1", "PYTHONUNBUFFERED": "1"}
    log = folder / "worker.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=drain_s) as process:
        yield process
