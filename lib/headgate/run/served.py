"""Models that a run serves itself from weights, and the requests to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from headgate.core import ChatError, ChatReply, Clock, ErrorKind, Message, Model
from headgate.core.errors import HeadgateError
from headgate.core.events import Emit
from headgate.core.status import EngineStatus
from headgate.elastic.engines import Outgoing
from headgate.elastic.errors import PoolClosedError, PoolFullError, RequestLostError
from headgate.elastic.service import PoolStatus
from headgate.environments import NativeForm
from headgate.models import (
    TASK_HEADER,
    TASK_HEADER_OPTION,
    ToolTrials,
    failure_of_status,
    read_completion,
    request_body,
)
from headgate.run.served_pool import HOPELESS, RETRY_S, EngineHosts, ServedPool

_CHAT: Final = "/v1/chat/completions"
_CHARS_PER_TOKEN: Final = 4
_ANSWER_TOKENS: Final = 256


class ServedModels:
    """Serves models from weights and sends them requests. Implements `ChatSender`; one per run, on its event loop.

    Enter the context before the first model is followed. A model's engines end as soon as it has left, and all of them
    end with the context.

    Attributes:
        changed: called with a model's key when its engines can answer, or no longer can.
        due: returns how many samples of a model are ready or in progress.
        in_progress: returns how many are in progress.
        hopeless: called with a model's key and the reason when its engines have failed several times without an answer.
        hosts, clock, emit: used by its pools.
        request_s: time limit of a request.
        retry_s: pause before engines that failed are tried again, doubled with each failure.
    """

    def __init__(
        self, hosts: EngineHosts, *, clock: Clock, emit: Emit, request_s: float, retry_s: float = RETRY_S
    ) -> None:
        self.changed: Callable[[str], None] = lambda _: None
        self.due: Callable[[str], int] = lambda _: 0
        self.in_progress: Callable[[str], int] = lambda _: 0
        self.hopeless: Callable[[str, str], None] = lambda *_: None
        self.hosts = hosts
        self.clock = clock
        self.emit = emit
        self.request_s = request_s
        self.retry_s = retry_s
        self._pools: dict[str, ServedPool] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._group = asyncio.TaskGroup()
        self._numbers = itertools.count(1)
        self._change = asyncio.Event()
        self._trials = ToolTrials()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all engines."""
        for key in list(self._pools):
            self.leave(key)
        if isinstance(error, asyncio.CancelledError):  # possibly the group's own, which only the group can tell
            await self._group.__aexit__(kind, error, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def follow(self, model: Model) -> None:
        """Serve a model according to its present roster entry; do nothing for one that has an endpoint."""
        before = self._pools.get(model.key)
        if before is not None and before.serving == model.serve:
            return
        self.leave(model.key)
        if model.serve is None:
            if before is not None:
                self.changed(model.key)
            return
        pool = self._pools[model.key] = ServedPool(model.key, model.serve, self)
        task = self._group.create_task(self._run(pool, self._running.get(model.key)), name=f"engines of {model.key}")
        self._running[model.key] = task
        self.changed(model.key)

    def leave(self, key: str) -> None:
        """End the engines of a model; does nothing if it has none."""
        if (pool := self._pools.pop(key, None)) is not None:
            pool.leave()

    def is_ready(self, key: str) -> bool:
        """Return whether a model can answer now: one of its engines is awake, or it has an endpoint."""
        pool = self._pools.get(key)
        return pool is None or pool.is_ready

    def has_failed(self, key: str) -> bool:
        """Return whether an engine of a model has failed and has not been awake since."""
        pool = self._pools.get(key)
        return pool is not None and pool.failures > 0

    def status(self, key: str) -> EngineStatus | None:
        """Return the state of a model's engines; None for a model that is not served."""
        pool = self._pools.get(key)
        return None if pool is None else pool.status()

    def pools(self) -> list[PoolStatus]:
        """Return the open pools."""
        return [pool.service.status() for pool in self._pools.values() if pool.service is not None]

    async def why(self, key: str) -> str:
        """Return why a model cannot answer now, in a sentence; empty if it can."""
        pool = self._pools.get(key)
        return "" if pool is None or pool.is_ready else await pool.why()

    def look(self, key: str) -> None:
        """Note that samples of a model are due."""
        if (pool := self._pools.get(key)) is not None:
            pool.look()

    async def ready(self, key: str) -> None:
        """Return once a model can answer; for callers that do not queue samples.

        Raises:
            HeadgateError: if its engines do not start.
        """
        while not self.is_ready(key):
            if (status := self.status(key)) is not None and status.state == "failed":
                raise HeadgateError(f"the engine of {key} has failed: {status.reason}")
            await self._change.wait()

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        """Return the reply of one attempt, from one of the model's engines.

        Raises:
            ChatError: there is no reply; ENGINE if no engine is awake, or the last one left before it answered.
        """
        pool = self._pools.get(model.key)
        if pool is None:
            raise ChatError(ErrorKind.ENGINE, f"no engine of {model.key} is awake")

        async def send(native: NativeForm | None) -> tuple[ChatReply, int]:
            return await self._sent(pool, *self._outgoing(model, messages, task_header, native))

        return await self._trials.ask(model, messages, send)

    async def _sent(self, pool: ServedPool, outgoing: Outgoing, tokens: int) -> tuple[ChatReply, int]:
        began, key = self.clock.monotonic(), pool.key
        if pool.service is None or not pool.is_awake:
            raise ChatError(ErrorKind.ENGINE, f"no engine of {key} is awake")
        try:
            async with (
                asyncio.timeout(self.request_s),
                pool.patience() as patience,
                pool.service.request(outgoing, tokens=tokens) as answer,
            ):
                body = b"".join([chunk async for chunk in answer.chunks])
        except TimeoutError:
            if patience.expired():
                raise ChatError(ErrorKind.ENGINE, f"the engine of {key} went before it answered") from None
            said = f"no whole answer within {self.request_s:g} s"
            raise ChatError(ErrorKind.PROVIDER_TIMEOUT, said) from None
        except PoolClosedError as error:
            raise ChatError(ErrorKind.ENGINE, error.message) from None
        except PoolFullError as error:
            raise ChatError(ErrorKind.RATE_LIMITED, error.message) from None
        except RequestLostError as error:
            raise ChatError(ErrorKind.PROVIDER_FAILURE, error.message) from None
        if answer.status // 100 != 2:
            raise failure_of_status(answer.status, body, answer.headers, self.clock.wall())
        read = read_completion(body)
        return read.reply(self.clock.monotonic() - began), read.calls

    def _outgoing(
        self, model: Model, messages: Sequence[Message], task_header: str | None, native: NativeForm | None
    ) -> tuple[Outgoing, int]:
        """Return the request for an engine, and the tokens that it will probably take."""
        options = dict(model.options)
        headers = {TASK_HEADER: task_header} if task_header and options.get(TASK_HEADER_OPTION) is True else {}
        # A complete answer can move to another engine unnoticed; the start of a stream cannot.
        body = request_body(model, messages, options | {"stream": False}, streams=False, native=native)
        most = options.get("max_tokens")
        tokens = len(body) // _CHARS_PER_TOKEN + (most if isinstance(most, int) else _ANSWER_TOKENS)
        return Outgoing(f"{model.key}/{next(self._numbers)}", _CHAT, body, headers), tokens

    async def _run(self, pool: ServedPool, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])  # the same model as it was served before
        await pool.run()
        if self._running.get(pool.key) is asyncio.current_task():
            del self._running[pool.key]

    def looked_at(self, pool: ServedPool) -> None:
        """Apply the state of a pool that has just looked at its engines."""
        self._change.set()
        self._change = asyncio.Event()
        if self._pools.get(pool.key) is not pool:
            return
        self.changed(pool.key)
        if pool.failures >= HOPELESS:
            self.hopeless(pool.key, pool.status().reason)
