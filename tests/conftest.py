"""What tests of several rooms share: one Prefect server for all of them, and models that answer."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

# Read when Prefect is imported: no test starts a server without asking for one, or tells anybody about it.
os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real Prefect server with the work pool of `prefect.yaml`; starting it takes about ten seconds, once."""
    from headgate.orchestration import ensure_pool, private_server

    with asyncio.Runner() as runner:
        running = private_server(tmp_path_factory.mktemp("prefect"))
        server = runner.run(running.__aenter__())
        try:
            with server.as_client():
                runner.run(ensure_pool(), context=contextvars.copy_context())
            yield server
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def prefect(prefect_server: object) -> Iterator[object]:
    """The server, with this process as its client."""
    with prefect_server.as_client():  # type: ignore[attr-defined]
        yield prefect_server


@pytest.fixture
async def baselines() -> AsyncIterator[str]:
    """The address of an endpoint that serves the baseline agents."""
    from headgate.models import serve

    async with serve() as endpoint:
        yield endpoint.base_url


@pytest.fixture
def roster_file(tmp_path: Path, baselines: str) -> Path:
    """A roster of two baseline agents."""
    path = tmp_path / "roster.yaml"
    path.write_text(
        f"""
defaults: {{base_url: "{baselines}", options: {{headgate_task_header: true}}}}
models:
- {{name: solver, model: baseline-solver}}
- {{name: random, model: baseline-random}}
"""
    )
    return path
