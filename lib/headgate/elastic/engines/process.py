"""An engine that is started from weights: its command, its process, and its answers. Runs on the engine's node.

Needs no Ray: an `EngineProcess` can be an engine of a pool as an actor (`EngineActor`) or inside this process.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

import aiohttp

from headgate.core import Launch
from headgate.durable.locks import temporary_folder
from headgate.elastic.engines.weights import weights_here
from headgate.elastic.errors import EngineError
from headgate.net.listener import free_port
from headgate.processes import ChildProcess, child_process

_ASK_EVERY_S: Final = 0.05
_GRACE_S: Final = 10.0
_ENDING_S: Final = 0.5
_ANSWER_S: Final = 600.0
"""The default `request_timeout` of a pool; a pool with a shorter one ends the request by an abort."""

_TOLD_LINES: Final = 3
_READY: Final = {"llama.cpp": "/health", "vllm": "/health", "sglang": "/ready", "command": "/v1/models"}


def command_line(launch: Launch, port: int) -> list[str]:
    """Return the command line of an engine on this node."""
    place = ["--host", "127.0.0.1", "--port", str(port)]
    match launch.program:
        case "llama.cpp":
            start = [sys.executable, "-m", "headgate.cli", "serve-model", "--weights", launch.weights]
            start += ["--name", launch.name, "--parallel", str(launch.slots), *place]
        case "vllm":
            start = ["vllm", "serve", launch.weights, "--served-model-name", launch.name, *place]
            start += ["--tensor-parallel-size", str(max(1, launch.gpus)), "--max-num-seqs", str(launch.slots)]
        case "sglang":
            start = [sys.executable, "-m", "sglang.launch_server", "--model-path", launch.weights, *place]
            start += ["--served-model-name", launch.name, "--tp-size", str(max(1, launch.gpus))]
            start += ["--max-running-requests", str(launch.slots)]
        case _:
            told = {"{port}": str(port), "{weights}": launch.weights, "{name}": launch.name}
            start = [_put_in(part, told) for part in shlex.split(launch.command)]
    return start + _flags(launch.options)


class EngineProcess:
    """An engine's process, started by `wake`; it ends with this object's own process. Implements `EngineActor`.

    The engine listens on loopback only and its answers pass through here, so it cannot be reached over the network.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        """How to start it next time."""
        self._running: dict[str, asyncio.Future[aiohttp.ClientResponse]] = {}
        self._exits = AsyncExitStack()
        self._child: ChildProcess | None = None
        self._session: aiohttp.ClientSession | None = None
        self.address = ""
        """Its URL on loopback; empty before its first start."""
        self.folder = ""
        """Its working folder, until it ends; empty before its first start."""
        self.weights = ""
        """Path on this node of the weights that it was last given; empty before its first start."""

    async def wake(self, environ: Mapping[str, str] | None = None) -> None:
        """Start the engine, and return once it answers; does nothing if it is running.

        Args:
            environ: environment variables in addition to those of its launch.

        Raises:
            EngineError: its program is not installed, its weights are missing, it ended, or it took too long.
        """
        if self.is_up:
            return
        await self.sleep()
        launch = self.launch
        self.weights = await weights_here(launch.weights)
        launch = replace(launch, weights=self.weights)
        port = free_port()
        command = command_line(launch, port)
        if shutil.which(command[0]) is None:
            raise EngineError(
                f"{command[0]!r}, the command that starts {launch.program}, is not installed on this node",
                is_final=True,
            )
        folder = self._exits.enter_context(temporary_folder("headgate-engine-"))
        self.folder = str(folder)
        try:
            self._child = await self._exits.enter_async_context(
                child_process(
                    command,
                    environ={**os.environ, **launch.environ, **(environ or {})},
                    folder=folder,
                    log=folder / "engine.log",
                    grace_s=_GRACE_S,
                )
            )
            self._session = await self._exits.enter_async_context(
                aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=aiohttp.ClientTimeout(_ANSWER_S))
            )
            self.address = f"http://127.0.0.1:{port}"
            await self._answering(self._child, self._session)
        except BaseException:
            await asyncio.shield(self.sleep())
            raise

    async def sleep(self) -> None:
        """End the engine, which frees all its memory."""
        exits, self._exits = self._exits, AsyncExitStack()
        self._child = self._session = None
        await exits.aclose()

    def load(self) -> Mapping[str, Any]:
        """Return a reading; an engine that does not run or has ended counts as asleep."""
        return {
            "running": len(self._running),
            "slots": self.launch.slots,
            "models": [self.launch.name],
            "is_asleep": not self.is_up,
        }

    async def chat(self, path: str, body: bytes, request_id: str) -> AsyncIterator[Mapping[str, Any] | bytes]:
        """Yield the engine's answer: status and content type, then the body as it arrives.

        Raises:
            EngineError: the engine does not run, or has ended.
        """
        session, child = self._session, self._child
        if session is None or child is None:
            raise EngineError(f"{self.launch.program} does not run")
        headers = {"Content-Type": "application/json"}
        sent = self._running[request_id] = asyncio.ensure_future(session.post(path, data=body, headers=headers))
        try:
            async with await sent as answer:
                yield {"status": answer.status, "content_type": answer.content_type}
                async for chunk in answer.content.iter_any():
                    yield chunk
        except asyncio.CancelledError:
            if self._running.get(request_id) is sent:
                raise
        except aiohttp.ClientError as error:
            if self._running.get(request_id) is sent:
                said = self._ended(child) if child.has_ended else f"{self.launch.program}: {error}"
                raise EngineError(said) from None
        finally:
            was_aborted = self._running.get(request_id) is not sent
            if not was_aborted:
                del self._running[request_id]
        if was_aborted:
            raise EngineError("the request was aborted")

    async def abort(self, request_id: str) -> None:
        """End a request: the engine sees its connection close."""
        sent = self._running.pop(request_id, None)
        if sent is not None and not sent.cancel() and not sent.cancelled() and sent.exception() is None:
            sent.result().close()

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._child is not None and not self._child.has_ended

    async def last_words(self) -> str:
        """Return how it ended, with its last lines of output; empty if it is still running.

        Waits a moment, as an engine's connections close shortly before its process is gone.
        """
        if (child := self._child) is None:
            return ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                await child.ended()
        return self._ended(child) if child.has_ended else ""

    async def _answering(self, child: ChildProcess, session: aiohttp.ClientSession) -> None:
        launch = self.launch
        try:
            async with asyncio.timeout(launch.start_s):
                while not await _is_ready(session, _READY[launch.program]):
                    if child.has_ended:
                        raise EngineError(self._ended(child))
                    await asyncio.sleep(_ASK_EVERY_S)
        except TimeoutError:
            said = f"{launch.program} did not answer within {launch.start_s:g} s; its last lines: {_told(child)}"
            raise EngineError(said) from None

    def _ended(self, child: ChildProcess) -> str:
        return f"{self.launch.program} has ended; its last lines: {_told(child)}"


async def _is_ready(session: aiohttp.ClientSession, path: str) -> bool:
    try:
        async with session.get(path, timeout=aiohttp.ClientTimeout(5)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _told(child: ChildProcess) -> str:
    lines = [line.strip() for line in child.last_lines().splitlines() if line.strip()]
    return " | ".join(lines[-_TOLD_LINES:]) or "none"


def _flags(options: Mapping[str, str | float | bool]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        flag = f"--{name.lstrip('-').replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is not False:
            flags += [flag, str(value)]
    return flags


def _put_in(part: str, told: Mapping[str, str]) -> str:
    for name, value in told.items():
        part = part.replace(name, value)
    return part
