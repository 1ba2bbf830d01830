"""A running fake engine: its address, its state for tests to read, and the controls for tests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from headgate.net.listener import bound, url_of
from headgate.simulation.engines.core import EngineCore
from headgate.simulation.engines.face import Failure, Trouble
from headgate.simulation.engines.plan import EnginePlan
from headgate.simulation.engines.sglang import SGLangFace
from headgate.simulation.engines.vllm import VLLMFace

_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_DIED: Final = 128 + signal.SIGQUIT
"""Exit status of a real engine whose scheduler raised."""


class FakeEngine:
    """A running fake engine. Made by `serve_engine`; call everything from its event loop.

    Request ids are those inside the engine: SGLang's `rid`; for vLLM `chatcmpl-` plus the X-Request-Id for a chat, and
    `cmpl-` plus that id plus `-0` for a completion.
    """

    def __init__(self, plan: EnginePlan) -> None:
        self.plan = plan
        self.url = ""
        self.core = EngineCore(plan, self._break_connections)
        self._trouble = Trouble(self.core)
        self._face: SGLangFace | VLLMFace = (SGLangFace if plan.api == "sglang" else VLLMFace)(self.core)
        app = web.Application(
            client_max_size=_MAX_BODY_BYTES, middlewares=[self._trouble.middleware, self._face.middleware]
        )
        self._face.add_to(app)
        # A client that goes away cancels its handler, and with it the request in the engine.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        self._server: asyncio.Server | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the requests with a slot, in the order in which they got one."""
        return tuple(request.request_id for request in self.core.running)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the queued requests, in order."""
        return tuple(request.request_id for request in self.core.waiting)

    @property
    def answered(self) -> tuple[str, ...]:
        """Ids of the requests that were generated to their end, in the order in which they ended."""
        return tuple(request_id for request_id, finish in self.core.ended if finish != "abort")

    @property
    def aborted(self) -> tuple[str, ...]:
        """Ids of the requests that were aborted, by a call or because their client went away, in order."""
        return tuple(request_id for request_id, finish in self.core.ended if finish == "abort")

    @property
    def released(self) -> frozenset[str]:
        """Memory tags that the engine has released."""
        return frozenset(self.core.released)

    @property
    def is_asleep(self) -> bool:
        """Whether memory is released."""
        return bool(self.core.released)

    @property
    def calls(self) -> tuple[str, ...]:
        """Every call that arrived, such as `POST /sleep`, in order."""
        return tuple(self._trouble.calls)

    @property
    def crashed(self) -> bool:
        """Whether it is dead; see `crash_reason`."""
        return bool(self.core.died_of)

    @property
    def crash_reason(self) -> str:
        """The cause of its death, as a sentence; empty while it is alive."""
        return self.core.died_of

    def generated(self, request_id: str) -> int:
        """Return how many tokens a running or waiting request has."""
        return next((each.generated for each in self.core.requests() if each.request_id == request_id), 0)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once a condition holds, checked after every change: `until(lambda: engine.waiting == ())`."""
        await self.core.bell.until(is_so)

    async def until_called(self, call: str, times: int = 1) -> None:
        """Return once `call`, such as `POST /sleep`, has arrived `times` times."""
        await self.core.bell.until(lambda: self._trouble.calls.count(call) >= times)

    def hold(self, after_tokens: int = 0) -> None:
        """Pause answers after this many tokens until `finish`; with 0 each request keeps its slot without output."""
        self.core.held_at = after_tokens

    def finish(self, request_id: str | None = None) -> None:
        """Let one request continue to its end, or all of them, including future ones."""
        if request_id is None:
            self.core.held_at = None
        for request in self.core.requests():
            request.may_pass |= request_id in (None, request.request_id)
        self.core.bell.ring()

    def hang(self, *paths: str) -> None:
        """Stop answering calls of `paths`; without paths the whole engine stops, as under SIGSTOP.

        Calls that have arrived are carried out after `let_go`, control calls even if their caller has gone meanwhile.
        """
        self._trouble.hanging.update(paths)
        self.core.is_stopped |= not paths

    def let_go(self) -> None:
        """Undo `hang` and `fail_next`: hanging calls are answered now."""
        self._trouble.hanging.clear()
        self._trouble.failures.clear()
        self.core.is_stopped = False
        self.core.bell.ring()

    def fail_next(self, n: int, status: int = 502, *, path: str | None = None, is_carried_out: bool = False) -> None:
        """Answer the next `n` calls of `path` with `status`; without a path those of any control route.

        With `is_carried_out` they take effect anyway, as when a proxy in between gave up.
        """
        self._trouble.failures.append(Failure(n, status, path, is_carried_out))

    def crash(self, reason: str = "kill -9") -> None:
        """Die at once: all connections break, and new ones are refused."""
        self.core.die(reason)

    async def drain(self) -> None:
        """Refuse new requests, and return once the open ones are answered, as on SIGTERM."""
        self._face.is_leaving = True
        await self.core.bell.until(lambda: self.crashed or self.core.is_idle)

    async def listen(self, host: str, port: int) -> None:
        """Start listening; port 0 means any free one.

        Raises:
            InvalidSettingError: the address cannot be bound.
        """
        listener = bound(host, port)
        await self._runner.setup()
        assert self._runner.server is not None, "a runner that is set up has a server"
        self._server = await asyncio.get_running_loop().create_server(self._runner.server, sock=listener)
        self.url = url_of(listener, host=host)

    async def close(self) -> None:
        """Stop listening and release everything; legal twice, and after a crash."""
        if self._server is not None:
            self._server.close()
        self._trouble.close()
        await self._runner.cleanup()

    def _break_connections(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()


@asynccontextmanager
async def serve_engine(
    plan: EnginePlan | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[FakeEngine]:
    """Yield a running fake engine; it stops when the context ends.

    Raises:
        InvalidSettingError: the address cannot be bound.
    """
    engine = FakeEngine(plan or EnginePlan())
    try:
        await engine.listen(host, port)
        yield engine
    finally:
        await engine.close()


async def run_engine(plan: EnginePlan, *, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve a fake engine until SIGTERM or SIGINT, and return when its requests are answered.

    Its address is printed once it listens. If it dies, the process ends with it.

    Raises:
        InvalidSettingError: the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    async with serve_engine(plan, host=host, port=port) as engine:
        leaving = loop.create_task(engine.until(lambda: engine.crashed))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leaving.cancel)
        print(engine.url, flush=True)  # the output of the command
        await asyncio.wait([leaving])
        await engine.drain()
        if engine.crashed:
            # Without clean-up, like a killed process.
            os._exit(_DIED)
