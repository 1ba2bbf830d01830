"""The small real language model of the demo: served beside the baseline agents where its packages are installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from headgate.core import errors
from headgate.models import LOCAL_MODEL
from headgate.orchestration.children import ChildProcess, child_process
from headgate.orchestration.own_server import free_port

LOCAL_MODEL_OPTIONS: Final[Mapping[str, Any]] = {"max_tokens": 48, "temperature": 0}
"""Short answers: beside everything else one processor writes a few hundred of its tokens in the window."""

_UP_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.1
_GRACE_S: Final = 5.0


@asynccontextmanager
async def served_local_model(folder: Path, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """Serve the local model in a process of its own; give its address.

    Raises:
        HeadgateError: if it does not answer in time; says what it wrote.
    """
    port = free_port()
    command = [sys.executable, "-m", "headgate.cli", "serve-model", "--port", str(port), "--parallel", "1"]
    log = folder / "local-model.log"
    address = f"http://127.0.0.1:{port}"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=_GRACE_S) as child:
        if not await _comes_up(f"{address}/health", child):
            raise errors.HeadgateError(
                f"the local model {LOCAL_MODEL} does not answer: {child.last_lines(3)}",
                next_step=f"Its log is in {log}; --no-local-model leaves it out.",
            )
        yield f"{address}/v1"


async def _comes_up(url: str, child: ChildProcess) -> bool:
    """Return whether the server answers in time and is still there."""
    try:
        async with asyncio.timeout(_UP_S):
            while not (child.has_ended or await _answers(url)):  # noqa: ASYNC110 - a server tells nobody that it is up
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        return False
    return not child.has_ended


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
