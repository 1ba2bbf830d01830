"""Requests between clients and engines: sent, handed over without the client noticing, and answered once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Self

from headgate.core import ReleaseOutcome
from headgate.core.errors import HeadgateError
from headgate.elastic.engines.engine import Engine, EngineAnswer, Outgoing
from headgate.elastic.errors import (
    FAULTS,
    InvalidElasticError,
    PoolClosedError,
    PoolFullError,
    RequestLostError,
    sentence,
)
from headgate.elastic.outbox import Abort, Cut, Fail, Send
from headgate.elastic.pool import ElasticPool
from headgate.elastic.queue import ElasticRequest, Refused
from headgate.elastic.service.status import ServiceCounts
from headgate.elastic.service.steps import Steps
from headgate.elastic.settings import ElasticConfig

MOST_HELD_BYTES: Final = 32 * 1024 * 1024
"""An answer up to this size is held back until it is complete, so that its request can still be handed over."""

_STREAM: Final = "text/event-stream"
_log = logging.getLogger("headgate.elastic")


MOST_BYTES: Final = 256 * 1024
"""How far an engine may be ahead of its client before it waits, so that a slow client takes bounded memory."""


class Channel:
    """Passes an answer from the task that reads it to the one that sends it to the client. One writer, one reader.

    The reader gets everything written before the end, then the end: StopAsyncIteration, or the error given to `end`.
    """

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._has_ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the engine has to wait for the client."""
        return self._bytes > MOST_BYTES

    async def put(self, chunk: bytes) -> None:
        """Pass a chunk on, and wait while the channel is full."""
        self.add(chunk)
        while self.is_full and not self._has_ended:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def add(self, chunk: bytes) -> None:
        """Pass a chunk on without waiting."""
        if chunk:
            self._chunks.append(chunk)
            self._bytes += len(chunk)
            _wake(self._reader)

    def end(self, error: Exception | None = None) -> None:
        """End the stream for the reader, with an error if given; only the first call counts."""
        if not self._has_ended:
            self._has_ended = True
            self._error = error
            _wake(self._reader)
            _wake(self._writer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        chunk = self._chunks.popleft()
        self._bytes -= len(chunk)
        _wake(self._writer)
        return chunk


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class PendingAnswer:
    """One request and the answer its client waits for. Lives as long as the context of the request.

    Attributes:
        outgoing: the request as the client gave it.
        answer: resolves once, with the first part of the answer or with an error.
        channel: the channel of the answer's chunks; None before it has begun.
        is_over: whether the request has ended in the pool.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.answer: asyncio.Future[EngineAnswer] = asyncio.get_running_loop().create_future()
        self.channel: Channel | None = None
        self.is_over = False

    def deliver(self, answer: EngineAnswer, channel: Channel) -> None:
        """Give the client its answer, whose chunks arrive through a channel."""
        self.channel = channel
        if not self.answer.done():
            self.answer.set_result(replace(answer, chunks=channel))

    def fail(self, error: HeadgateError) -> None:
        """Give the client an error in place of the answer, or of the rest of it."""
        self.is_over = True
        if self.channel is not None:
            self.channel.end(error)
        elif not self.answer.done():
            self.answer.set_exception(error)

    def leave(self) -> None:
        """Release the answer, as the client no longer waits for it."""
        if self.answer.done() and not self.answer.cancelled():
            self.answer.exception()  # mark it as retrieved, in case the client was cancelled before it could
        else:
            self.answer.cancel()


class InFlight:
    """All requests that clients are waiting for. Owned by the service."""

    def __init__(
        self, engines: Mapping[str, Engine], config: ElasticConfig, counts: ServiceCounts, steps: Steps
    ) -> None:
        self._engines = engines
        self._config = config
        self._counts = counts
        self._steps = steps
        self._pending: dict[str, PendingAnswer] = {}
        self._attempts: dict[tuple[str, int], asyncio.Task[None]] = {}

    @asynccontextmanager
    async def request(self, outgoing: Outgoing, wanted: ElasticRequest) -> AsyncIterator[EngineAnswer]:
        """See `ElasticService.request`."""
        pending = self._depart(outgoing, wanted)
        try:
            yield await pending.answer
        finally:
            self._arrive(pending)

    def carry_out(self, command: Send | Abort | Cut | Fail) -> None:
        """Start carrying out a command."""
        match command:
            case Send():
                self._send(command)
            case Abort():
                # Removed at once: what the attempt still receives was cut short by the abort, and is not the answer.
                attempt = self._attempts.pop((command.request_id, command.epoch), None)
                self._steps.start(self._abort(command, attempt), f"abort {command.request_id}")
            case Cut():
                attempt = self._attempts.pop((command.request_id, command.epoch), None)
                if attempt is not None:
                    attempt.cancel()
            case Fail():
                pending = self._pending.get(command.request_id)
                if pending is not None:
                    kind = PoolFullError if command.code == PoolFullError.code else RequestLostError
                    pending.fail(kind(command.says))

    def end(self, why: str) -> None:
        """Fail all unanswered requests, as the service ends."""
        for pending in self._pending.values():
            if not pending.is_over:
                self._counts.counts.lost += 1
                pending.fail(PoolClosedError(why))

    # The client's side

    def _depart(self, outgoing: Outgoing, wanted: ElasticRequest) -> PendingAnswer:
        request_id = outgoing.request_id
        if request_id in self._pending:
            raise InvalidElasticError(
                f"request_id must be unique (got {request_id!r:.80}, which is in flight)",
                next_step="Give every request an id of its own.",
            )
        pending = self._pending[request_id] = PendingAnswer(outgoing)
        try:
            submitted = self._steps.do(lambda pool, now: pool.submit(wanted, now))
        except BaseException:
            self._pending.pop(request_id)
            pending.leave()
            raise
        if isinstance(submitted, Refused):
            del self._pending[request_id]
            pending.leave()
            self._counts.counts.refused += 1
            if submitted.reason == "closed":
                raise PoolClosedError(submitted.says)
            raise PoolFullError(submitted.says, retry_after_s=submitted.retry_after_s)
        self._counts.counts.arrived += 1
        return pending

    def _arrive(self, pending: PendingAnswer) -> None:
        request_id = pending.outgoing.request_id
        del self._pending[request_id]
        pending.leave()
        if not pending.is_over and self._steps.is_open:
            self._counts.counts.withdrawn += self._steps.do(lambda pool, now: pool.withdraw(request_id, now))

    # The engines' side

    def _send(self, command: Send) -> None:
        pending = self._pending[command.request_id]
        key = (command.request_id, command.epoch)
        attempt = self._steps.start(self._attempt(pending, command), f"send {command.request_id}")
        self._attempts[key] = attempt
        attempt.add_done_callback(lambda _: self._attempts.pop(key, None))

    async def _attempt(self, pending: PendingAnswer, command: Send) -> None:
        engine = self._engines[command.worker_id]
        limit_s = self._config.request_timeout
        is_worker_at_fault = True
        try:
            async with asyncio.timeout(limit_s) as deadline, engine.answer(pending.outgoing) as answer:
                await self._pass_on(pending, answer, command)
                return
        except FAULTS as error:
            why = f"{command.worker_id} did not answer it within request_timeout {limit_s:g} s"
            if not deadline.expired():
                why = sentence(error)
            elif pending.channel is not None and pending.channel.is_full:
                why = f"its client did not read the answer within request_timeout {limit_s:g} s"
                is_worker_at_fault = False
        if self._is_heard(command):
            request_id, epoch = command.request_id, command.epoch
            self._steps.do(
                lambda pool, now: pool.broke(request_id, epoch, why, now, was_aborted=not is_worker_at_fault)
            )

    async def _pass_on(self, pending: PendingAnswer, answer: EngineAnswer, command: Send) -> None:
        """Deliver an answer: a complete one, or the first part of a stream, after which it cannot be handed over."""
        beginning, is_whole = await _beginning(answer)
        if not self._is_heard(command) or not self._begun(command, is_whole=is_whole):
            return
        channel = Channel()
        for chunk in beginning:
            channel.add(chunk)
        pending.deliver(answer, channel)
        if not is_whole:
            async for chunk in answer.chunks:
                if not self._is_heard(command):
                    return  # the request was aborted: what still arrives is not the answer
                self._steps.pool.alive(command.worker_id)
                await channel.put(chunk)
            self._steps.do(lambda pool, now: self._ended(pool, command, now))
        pending.is_over = True
        channel.end()

    def _is_heard(self, command: Send) -> bool:
        """Return whether a worker's answer still counts: its request was neither aborted nor cut."""
        return (command.request_id, command.epoch) in self._attempts

    def _begun(self, command: Send, *, is_whole: bool) -> bool:
        """Ask the pool whether the answer so far may go to the client."""

        def act(pool: ElasticPool, now: float) -> bool:
            if pool.begun(command.request_id, command.epoch) is not ReleaseOutcome.RELEASED:
                return False
            handling = pool.requests[command.request_id]
            self._counts.times.wait.add(handling.given_at - handling.arrived_at)
            self._counts.times.first_byte.add(now - handling.arrived_at)
            return not is_whole or self._ended(pool, command, now)

        return self._steps.do(act)

    def _ended(self, pool: ElasticPool, command: Send, now: float) -> bool:
        handling = pool.requests.get(command.request_id)
        if pool.ended(command.request_id, command.epoch, now) is not ReleaseOutcome.RELEASED or handling is None:
            return False
        self._counts.counts.served += 1
        self._counts.times.answer.add(now - handling.arrived_at)
        return True

    async def _abort(self, command: Abort, attempt: asyncio.Task[None] | None) -> None:
        """Abort a request in its engine, close its connection, and let the pool give it to another worker."""
        request_id, epoch = command.request_id, command.epoch
        try:
            async with asyncio.timeout(self._config.engine_timeout):
                await self._engines[command.worker_id].abort(request_id)
        except FAULTS as error:
            _log.info("%s could not be asked to abort %s: %s", command.worker_id, request_id, sentence(error))
        if attempt is not None:
            attempt.cancel()
            await asyncio.wait([attempt], timeout=self._config.engine_timeout)
        why = f"{command.worker_id} drains"
        self._steps.do(lambda pool, now: pool.broke(request_id, epoch, why, now, was_aborted=True))


async def _beginning(answer: EngineAnswer) -> tuple[list[bytes], bool]:
    """Return the chunks of a complete answer, or the first part of one that streams or is too long to hold back."""
    chunks: list[bytes] = []
    most_bytes = 0 if answer.content_type.startswith(_STREAM) else MOST_HELD_BYTES
    held_bytes = 0
    async for chunk in answer.chunks:
        chunks.append(chunk)
        held_bytes += len(chunk)
        if held_bytes > most_bytes:
            return chunks, False
    return chunks, True
