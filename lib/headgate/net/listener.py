"""Accepts connections for every HTTP server of Headgate, and limits the resources that they can take.

The servers' frameworks parse and answer; this decides which connections are accepted, and ends those that stall:

- A request's head must arrive within `HEAD_S` of its first byte or of the opening of the connection.
- A client that reads nothing of its answer for `IDLE_S` is cut off.
- The total of connections is limited, and one peer may have three quarters of it. Beyond the limit the connection that
  has been idle longest is closed; if all are busy, the new one is answered 503. When the process runs out of file
  descriptors, of which connections take at most half, an idle one is closed as well.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import resource
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, cast

from headgate.core.errors import InvalidInputError, InvalidSettingError

_log = logging.getLogger("headgate.net")

HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
"""Longer than the time between two heartbeats of a worker, so that its connection stays open."""

_BACKLOG: Final = 4096
"""Connections that wait to be accepted: workers of a whole cluster may come at once."""

_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.1
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Listener:
    """One listening socket. Owned by the server that it accepts for; lives on one event loop.

    Invariant: `_connections` are the open ones, those that were silent longest first.

    Args:
        listener: bound and listening; closed by `close`.
        protocols: creates the protocol of a connection.
        awaits_head: returns whether such a protocol waits for the (rest of the) head of a request.
        most: connections at once.
        tls: None for plain HTTP.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocols: Callable[[], Any],
        awaits_head: Callable[[Any], bool],
        most: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        listener.setblocking(False)
        self.protocols = protocols
        self.awaits_head = awaits_head
        self._listener = listener
        self._most = _most_for(most)
        self._tls = tls
        self._connections: dict[_Connection, None] = {}
        self._of_peer: Counter[str] = Counter()
        self._accepting = asyncio.create_task(self._accept(), name="listener")
        for name in ("uvicorn.error", "aiohttp.server", _log.name):
            logging.getLogger(name).addFilter(_SPARING)
        _SPARING.written.clear()

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        self._accepting.cancel()
        self._listener.close()
        for connection in [one for one in self._connections if one.transport is None]:
            connection.end()

    async def wait_closed(self) -> None:
        """Wait until accepting has stopped."""
        await asyncio.wait([self._accepting])

    def moved(self, connection: _Connection) -> None:
        """Note that data arrived on a connection."""
        if self._connections.pop(connection, self) is None:
            self._connections[connection] = None

    def left(self, connection: _Connection) -> None:
        """Note that a connection has ended; may be called twice."""
        if self._connections.pop(connection, self) is None:
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                opened, address = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    _log.warning("Connections wait to be accepted: %s", error.strerror)
                    self._end_idle()
                    await asyncio.sleep(_PAUSE_S)
            else:
                self._take(opened, str(address[0]))
            await asyncio.sleep(0)  # existing connections get a turn

    def _take(self, opened: socket.socket, peer: str) -> None:
        if not self._has_room(peer):
            _log.warning("A connection was answered 503: %d are open and busy", len(self._connections))
            with opened, suppress(OSError):
                if self._tls is None:
                    opened.send(_FULL)
            return
        connection = _Connection(self, peer)
        self._connections[connection] = None
        self._of_peer[peer] += 1
        connection.opening = asyncio.create_task(connection.open(opened, self._tls))

    def _has_room(self, peer: str) -> bool:
        if self._of_peer[peer] >= max(1, self._most * 3 // 4):
            return self._end_idle(peer)
        return len(self._connections) < self._most or self._end_idle()

    def _end_idle(self, peer: str | None = None) -> bool:
        """End the connection, of a peer or of all, that has been idle longest; return whether there was one."""
        for connection in islice(self._connections, 1000):
            is_idle = connection.transport is None or self.awaits_head(connection.inner)
            if is_idle and peer in {None, connection.peer}:
                connection.end()
                return True
        return False


class _Connection(asyncio.Protocol):
    """Wraps the framework's protocol of one connection. Owned by its listener."""

    def __init__(self, listener: Listener, peer: str) -> None:
        self.peer = peer
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.opening: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.inner: Any = None
        self._slow: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def end(self) -> None:
        self._listener.left(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    async def open(self, opened: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Start reading from a socket, after the TLS handshake if there is one."""
        limits = {"ssl_handshake_timeout": HEAD_S, "ssl_shutdown_timeout": HEAD_S} if tls else {}
        try:
            await self._loop.connect_accepted_socket(lambda: self, opened, ssl=tls, **limits)
        except (OSError, TimeoutError) as error:
            _log.debug("A connection could not be opened: %s", error)
        finally:
            if self.transport is None:
                opened.close()
                self._listener.left(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.inner = self._listener.protocols()
        self.inner.connection_made(transport)
        self._slow = self._loop.call_later(HEAD_S, self._end_slow)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
        self._listener.moved(self)
        if self._listener.awaits_head(self.inner):
            self._slow = self._slow or self._loop.call_later(HEAD_S, self._end_slow)
        elif self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def eof_received(self) -> bool | None:
        return cast("bool | None", self.inner.eof_received())

    def pause_writing(self) -> None:
        self.inner.pause_writing()
        self._stalled = self._loop.call_later(IDLE_S, self.end)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._slow, self._stalled):
            if timer is not None:
                timer.cancel()
        self._listener.left(self)
        self.inner.connection_lost(exc)

    def _end_slow(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_SLOW)
            self.transport.close()


def _most_for(wanted: int) -> int:
    """Return this many connections, or fewer if the limit on open files requires it."""
    return max(1, min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class _Sparing(logging.Filter):
    """Passes five lines of each kind per minute; a kind is a message without its arguments.

    A client that sends garbage must not fill a disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, deque[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        times = self.written.setdefault(str(record.msg)[:200], deque([-60.0] * 5, maxlen=5))
        if record.created - times[0] < 60.0:
            return False
        times.append(record.created)
        return True


_SPARING: Final = _Sparing()


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        InvalidSettingError: if the address cannot be bound.
    """
    if not 0 <= port <= 65_535:
        raise InvalidSettingError(f"a port must be 0 to 65535 (got {port})")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message, step = f"port {port} of {host} is in use", "Choose another port, or 0 for any free one."
        else:
            message, step = f"cannot listen on {host} port {port} ({error})", "Choose an address of this machine."
        raise InvalidSettingError(message, next_step=step) from error


def url_of(listener: socket.socket, tls: ssl.SSLContext | None = None, host: str = "") -> str:
    """Return the URL of a listening socket, without a slash at its end; `host` replaces its address."""
    address, port = listener.getsockname()[:2]
    shown = (host or address).strip("[]")
    return f"{'http' if tls is None else 'https'}://{f'[{shown}]' if ':' in shown else shown}:{port}"


def allow_many_connections() -> None:
    """Raise this process's limit on open files, to at most 65 536: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_NOT_EPHEMERAL: Final = range(20_000, 32_768)
"""Ports outside Linux's ephemeral range: one inside it may be assigned to another program before it is used."""


def free_port(wanted: int = 0) -> int:
    """Return a free loopback port: the wanted one, or any for 0.

    Raises:
        InvalidInputError: if the wanted one is taken, or not a port number.
    """
    problem = ""
    for port in [wanted] if wanted else random.SystemRandom().sample(_NOT_EPHEMERAL, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                problem = f"port {port} cannot be listened on: {error.args[-1]}"
            else:
                return port
    raise InvalidInputError(problem, next_step="Choose another one, or 0 for any.")
