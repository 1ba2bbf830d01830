"""A policy server: a policy behind a websocket, in the protocol of BEHAVIOR-1K's servers, with fencing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import time
import traceback
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from headgate.core import until_set
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy.client import policy_url
from headgate.jobqueue.policy.protocol import (
    BUSY_CODE,
    MAX_MESSAGE_BYTES,
    SUPERSEDED_CODE,
    MalformedMessageError,
    Policy,
    PolicyLease,
    decode,
    encode,
    read_apart,
    read_lease,
)

HEALTH_PATH: Final = "/healthz"
CLOSE_TIMEOUT_S: Final = 2.0
PING_INTERVAL_S: Final = 30.0
PING_TIMEOUT_S: Final = 120.0
"""A client whose machine is gone frees the server after these two; a simulator busy computing still answers pings."""

_MAX_REASON_CHARS: Final = 120
"""A close frame holds 123 bytes of reason."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is refused."""

    why: str
    status: HTTPStatus
    close_code: int


BUSY: Final = Refusal("another episode is running", HTTPStatus.SERVICE_UNAVAILABLE, BUSY_CODE)
"""Another client's episode runs, and nothing indicates that it is over."""


class Seat:
    """The single client slot of a policy server. Owned by the server; lives as long as its process.

    A job queue counts the reservations of a server: the higher the epoch, the newer. So the newest one seen so far
    displaces the current client, older ones are refused for good, and the same one may return on a new connection.
    Clients without a lease take turns: one is admitted when the slot is free, and gives way to a lease.

    Invariant: a current client with a lease has the newest one.
    """

    def __init__(self) -> None:
        self.visit: int | None = None
        """The number of the current client's connection, None when the slot is free."""
        self._lease: PolicyLease | None = None
        self._newest: PolicyLease | None = None

    def ask(self, lease: PolicyLease | None) -> Refusal | None:
        """Return why a client is refused, None when it is admitted: the current one gives way. Changes nothing."""
        if (
            lease is not None
            and self._newest is not None
            and lease != self._newest
            and lease.epoch <= self._newest.epoch
        ):
            return Refusal(
                f"epoch {lease.epoch} of lease {lease.lease_id} is not newer than epoch {self._newest.epoch}, which "
                "was here before; reserve again, or restart this server if the job queue was set up again",
                HTTPStatus.CONFLICT,
                SUPERSEDED_CODE,
            )
        return BUSY if lease is None and self.visit is not None else None

    def take(self, visit: int, lease: PolicyLease | None) -> None:
        """Admit a client that `ask` did not refuse."""
        self.visit, self._lease = visit, lease
        if lease is not None:
            self._newest = lease

    def leave(self, visit: int) -> None:
        """Free the slot if it is still this client's."""
        if self.visit == visit:
            self.visit, self._lease = None, None

    def validate(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        assert self._lease is None or (self.visit is not None and self._lease == self._newest)


class PolicyServer:
    """Serves one policy to one client at a time, from `async with` on.

    The metadata is the first message on each connection. A message with the key `reset` starts an episode and is not
    answered; any other one is an observation, answered by a map with `action`. An error is answered by text and closes
    the connection. `GET /healthz` on the same port answers `OK`; with `tls` all of it is TLS. `Seat` decides who is
    admitted: a refusal is HTTP 409 (an old lease) or 503 (busy); a client whose reservation was superseded is cut off
    with close code 4409.
    """

    def __init__(
        self, policy: Policy, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._host = host
        self.port = port
        """The port that it listens on."""
        self._tls = tls
        self._server: Server | None = None
        self._seat = Seat()
        self._current: ServerConnection | None = None
        self._visits = itertools.count(1)
        self._policy_free = asyncio.Lock()  # held while a connection uses the policy; the next waits for a running act
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_stopping = False

    @property
    def url(self) -> str:
        """The address of its websocket."""
        return policy_url(self._host if self._tls is None else f"wss://{self._host}", self.port)

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            InvalidInputError: if it cannot listen on the address.
        """
        try:
            self._server = await serve(
                self._connected,
                self._host,
                self.port,
                ssl=self._tls,
                process_request=self._before_handshake,
                origins=[None],  # browsers send one
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                max_queue=2,  # a client waits for each answer; one that sends ahead must not fill the memory
                ping_interval=PING_INTERVAL_S,
                ping_timeout=PING_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
            )
        except (OSError, OverflowError, UnicodeError) as error:
            raise InvalidInputError(
                f"cannot listen on {self._host}:{self.port}: {getattr(error, 'strerror', None) or error}",
                next_step="Choose another --port or --host.",
            ) from None
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Accept no new client, give the running episode `grace_s` to end, then close; may be called twice."""
        self._is_stopping = True
        if grace_s > 0 and not await until_set(self._empty, grace_s):
            _log.warning("the episode was cut off: it did not end within %g s", grace_s)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _before_handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP requests, and refuse before the handshake clients that would not be admitted."""
        if self._is_stopping:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "the policy server is stopping\n")
        if request.path == HEALTH_PATH:
            return connection.respond(HTTPStatus.OK, "OK\n")
        try:
            refusal = self._seat.ask(read_lease(request.headers))
        except MalformedMessageError as error:
            return connection.respond(HTTPStatus.BAD_REQUEST, f"{error}\n")
        return None if refusal is None else connection.respond(refusal.status, f"{refusal.why}\n")

    async def _connected(self, connection: ServerConnection) -> None:
        """Serve one connection; another may have taken the slot during the handshake, so it asks again."""
        request = connection.request
        lease = read_lease(request.headers) if request is not None else None
        refusal, visit, previous = self._seat.ask(lease), next(self._visits), self._current
        if refusal is not None:
            await connection.close(refusal.close_code, refusal.why[:_MAX_REASON_CHARS])
            return
        self._seat.take(visit, lease)
        self._current = connection
        self._empty.clear()
        try:
            if previous is not None:
                newer = f"epoch {lease.epoch}" if lease is not None else "another client"
                await previous.close(SUPERSEDED_CODE, f"{newer} has this server now")
            async with self._policy_free:
                await self._serve(connection)
        finally:
            self._seat.leave(visit)
            if self._seat.visit is None:
                self._current = None
                self._empty.set()

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            await asyncio.to_thread(self._policy.reset)
            await connection.send(encode(self._policy.metadata))
            async for frame in connection:
                answer = await self._answer(frame)
                if answer is not None:
                    await connection.send(answer)
        except ConnectionClosed as closed:
            _log.info("a client is gone: %s", closed)
        except MalformedMessageError as error:
            await _fail(connection, f"{type(error).__name__}: {error}", CloseCode.INVALID_DATA)
        except Exception:  # noqa: BLE001 — a policy may raise anything; log and client get its traceback
            _log.exception("the policy failed; its client gets the traceback")
            await _fail(connection, traceback.format_exc(), CloseCode.INTERNAL_ERROR)

    async def _answer(self, frame: str | bytes) -> bytes | None:
        if isinstance(frame, str):
            raise MalformedMessageError(f"messages are binary (got the text {frame!r:.80})")
        message = await read_apart(decode, frame)
        if "reset" in message:
            await asyncio.to_thread(self._policy.reset)
            return None
        began = time.perf_counter()
        action = await asyncio.to_thread(self._policy.act, message)
        took_ms = (time.perf_counter() - began) * 1000
        return encode({"action": action, "server_timing": {"infer_ms": took_ms}})


async def _fail(connection: ServerConnection, report: str, code: CloseCode) -> None:
    """Send the error as text, then close the connection."""
    try:
        await connection.send(report)
    except ConnectionClosed:
        return  # no client is left to tell; the log has it
    await connection.close(code, "the error is in the frame before")
