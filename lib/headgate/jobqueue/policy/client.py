"""The clients of a policy server: for asyncio, and blocking ones for simulators without it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from headgate.jobqueue.blocking import BlockingClient, blocking
from headgate.jobqueue.policy.protocol import (
    BUSY_CODE,
    MAX_MESSAGE_BYTES,
    SUPERSEDED_CODE,
    Action,
    Dialogue,
    PolicyError,
    PolicyFailedError,
    PolicyLease,
    PolicyLostError,
    PolicyRefusedError,
    PolicyTimeoutError,
    PolicyUnreachableError,
    read_apart,
)

OPEN_TIMEOUT_S: Final = 30.0
"""Until the metadata arrives: a server that has just started may still be loading its weights."""

ACT_TIMEOUT_S: Final = 300.0
"""Per action: many policies compile for minutes at the first one."""

CLOSE_TIMEOUT_S: Final = 2.0
"""Longest wait for a server to acknowledge the close."""


_HOST: Final = re.compile(r"[A-Za-z0-9._~-]{1,253}|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?\]?")


def policy_url(host: str, port: int) -> str:
    """Return the websocket address of a policy server; `host` is a name or an address, with or without `ws(s)://`.

    Raises:
        PolicyUnreachableError: if it cannot be an address.
    """
    scheme, separator, name = host.rpartition("://")
    name = name.rstrip("/")
    if (separator and scheme not in ("ws", "wss")) or _HOST.fullmatch(name) is None:
        raise PolicyUnreachableError(
            f"{host!r:.300} is not a policy server's host",
            next_step="Give a host name or address, such as gpu-7.example.com.",
        )
    if not 1 <= port <= 65535:
        raise PolicyUnreachableError(
            f"the port of a policy server must be in 1..65535 (got {port})", next_step="Correct the port."
        )
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"{scheme or 'ws'}://{name}:{port}"


class PolicyClient:
    """A connection to one policy server, for one episode at a time.

    Owned by one task. Any failure or cancellation closes the connection and never opens it again by itself: a late
    answer would be taken for the next one, and on a new connection the policy has no memory of the episode.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        lease: PolicyLease | None = None,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        act_timeout_s: float = ACT_TIMEOUT_S,
    ) -> None:
        self.url = policy_url(host, port)
        self._lease = lease
        self._open_timeout_s = open_timeout_s
        self._act_timeout_s = act_timeout_s
        self._connection: ClientConnection | None = None
        self._dialogue: Dialogue | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the server says about itself.

        Raises:
            PolicyLostError: when not connected.
        """
        if self._dialogue is None:
            raise not_open(self.url)
        return self._dialogue.metadata

    async def connect(self) -> None:
        """Open the connection, closing any earlier one, and read the server's metadata.

        Raises:
            PolicyUnreachableError: if no policy server answers in time.
            PolicyRefusedError: if it is busy or the lease is an old one.
            PolicyFailedError: if it reports an error instead of its metadata.
            MalformedMessageError: if its metadata cannot be read.
        """
        await self.close()
        headers = self._lease.headers if self._lease is not None else None
        try:
            async with asyncio.timeout(self._open_timeout_s):
                self._connection = await connect(
                    self.url,
                    additional_headers=headers,
                    compression=None,
                    max_size=MAX_MESSAGE_BYTES,
                    open_timeout=None,  # the timeout above covers handshake and metadata together
                    close_timeout=CLOSE_TIMEOUT_S,
                    ping_interval=None,  # openpi's servers do not answer pings while the policy computes
                    proxy=None,
                )
                frame = await self._connection.recv()
                self._dialogue = await read_apart(Dialogue, frame)
        except (OSError, UnicodeError, WebSocketException) as error:
            self._drop()
            raise not_opened(self.url, error) from error
        except BaseException:
            self._drop()
            raise

    async def reset(self) -> None:
        """Begin an episode; connects first when there is no connection.

        Raises:
            PolicyError: as `connect`, or when the connection is lost.
        """
        if self._dialogue is None:
            await self.connect()
        async with self._exchange() as (connection, dialogue):
            await connection.send(dialogue.reset())

    async def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the policy's action for an observation.

        Raises:
            PolicyFailedError: if the policy failed, with its traceback as `report`, its answer is not an action, or an
                action had come before this observation: later ones would belong to the wrong observations.
            PolicyTimeoutError: if it took too long.
            PolicyLostError: if the connection ended, or was not open.
            PolicyRefusedError: if the server was given to a newer reservation.
            MalformedMessageError: if the observation cannot be encoded or the answer cannot be decoded.
        """
        async with self._exchange() as (connection, dialogue):
            early: list[str | bytes] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    while True:
                        early.append(await connection.recv())
            for frame in early:  # what has come so far answers resets
                if await read_apart(dialogue.read, frame) is not None:
                    raise PolicyFailedError(f"{self.url} sent an action that no observation had asked for")
            await connection.send(dialogue.observe(observation))
            while (action := await read_apart(dialogue.read, await connection.recv())) is None:
                pass
            return action

    async def update_host(self, host: str, port: int, *, lease: PolicyLease | None = None) -> None:
        """Switch to another server: closes the connection; the next `reset` or `connect` opens the new one.

        Raises:
            PolicyUnreachableError: if it cannot be an address; nothing is changed.
        """
        url = policy_url(host, port)
        await self.close()
        self.url, self._lease = url, lease

    async def close(self) -> None:
        """Close the connection; may be called twice and before `connect`."""
        connection, self._connection, self._dialogue = self._connection, None, None
        if connection is not None:
            await connection.close()

    def __copy__(self) -> Self:
        """Return a client with the same options and no connection."""
        client = object.__new__(type(self))
        vars(client).update(vars(self), _connection=None, _dialogue=None)
        return client

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _exchange(self) -> AsyncIterator[tuple[ClientConnection, Dialogue]]:
        """Yield the open connection for one exchange, and drop it when the exchange fails."""
        dialogue = self._dialogue
        if self._connection is None or dialogue is None:
            raise not_open(self.url)
        try:
            async with asyncio.timeout(self._act_timeout_s):
                yield self._connection, dialogue
        except ConnectionClosed as error:
            self._drop()
            raise lost(self.url, error) from error
        except TimeoutError as error:
            self._drop()
            raise PolicyTimeoutError(
                f"the policy server at {self.url} did not answer within {self._act_timeout_s:g} s{dialogue.skipped}"
            ) from error
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Drop the connection at once, without closing handshake; needs no await, so it works during cancellation."""
        connection, self._connection, self._dialogue = self._connection, None, None
        if connection is not None:
            connection.transport.abort()


_REFUSALS: Final = (409, 503)


def not_opened(url: str, error: BaseException) -> PolicyError:
    """Return why a connection could not be opened."""
    if isinstance(error, InvalidStatus) and error.response.status_code in _REFUSALS:
        said = error.response.body.decode(errors="replace").strip() if error.response.body else "it gives no reason"
        return PolicyRefusedError(f"the policy server at {url} refuses: {said:.300}")
    if (
        isinstance(error, ConnectionClosed)
        and error.rcvd is not None
        and error.rcvd.code in (BUSY_CODE, SUPERSEDED_CODE)
    ):
        return PolicyRefusedError(f"the policy server at {url} refuses: {error.rcvd.reason or 'it is busy'}")
    if isinstance(error, TimeoutError):
        return PolicyUnreachableError(f"the policy server at {url} does not answer in time")
    return PolicyUnreachableError(f"no policy server answers at {url}: {_sentence(error)}")


def lost(url: str, error: BaseException) -> PolicyError:
    """Return why a connection ended within an episode."""
    if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == SUPERSEDED_CODE:
        return PolicyRefusedError(f"the policy server at {url} was given to another: {error.rcvd.reason}")
    return PolicyLostError(f"the connection to the policy server at {url} ended within the episode: {_sentence(error)}")


def not_open(url: str) -> PolicyError:
    """Return the error of a call on a connection that is not open."""
    return PolicyLostError(
        f"there is no open connection to the policy server at {url}",
        next_step="Call connect(), and start the episode again.",
    )


def _sentence(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().rstrip(".")


class SyncPolicyClient(BlockingClient[PolicyClient]):
    """`PolicyClient` with blocking methods; the same rules hold. Owned by one thread."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        lease: PolicyLease | None = None,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        act_timeout_s: float = ACT_TIMEOUT_S,
    ) -> None:
        client = PolicyClient(host, port, lease=lease, open_timeout_s=open_timeout_s, act_timeout_s=act_timeout_s)
        super().__init__(client, "headgate-policy")

    @property
    def url(self) -> str:
        """The server's websocket address."""
        return self._asynchronous.url

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the server says about itself; raises as `PolicyClient.metadata`."""
        return self._asynchronous.metadata

    connect = blocking(PolicyClient.connect)
    reset = blocking(PolicyClient.reset)
    act = blocking(PolicyClient.act)
    update_host = blocking(PolicyClient.update_host)

    def __enter__(self) -> Self:
        self.connect()
        return self
