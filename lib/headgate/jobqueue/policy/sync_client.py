"""The client of a policy server for simulators that know no asyncio."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from headgate.jobqueue.policy.address import policy_url
from headgate.jobqueue.policy.client import ACT_TIMEOUT_S, CLOSE_TIMEOUT_S, OPEN_TIMEOUT_S
from headgate.jobqueue.policy.dialogue import Action, Dialogue
from headgate.jobqueue.policy.errors import PolicyTimeoutError
from headgate.jobqueue.policy.failures import lost, not_open, not_opened
from headgate.jobqueue.policy.lease import PolicyLease
from headgate.jobqueue.policy.wire import MAX_MESSAGE_BYTES


class SyncPolicyClient:
    """`PolicyClient` with methods that block; the same rules hold. Owned by one thread."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        lease: PolicyLease | None = None,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        act_timeout_s: float = ACT_TIMEOUT_S,
    ) -> None:
        self._url = policy_url(host, port)
        self._lease = lease
        self._open_timeout_s = open_timeout_s
        self._act_timeout_s = act_timeout_s
        self._connection: ClientConnection | None = None
        self._dialogue: Dialogue | None = None

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._url

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the server said of itself.

        Raises:
            PolicyLostError: when not connected.
        """
        if self._dialogue is None:
            raise not_open(self._url)
        return self._dialogue.metadata

    def connect(self) -> None:
        """Open the connection, anew if there was one, and read the server's metadata.

        Raises:
            PolicyError: as `PolicyClient.connect`.
        """
        self.close()
        deadline = time.monotonic() + self._open_timeout_s
        try:
            self._connection = connect(
                self._url,
                additional_headers=self._lease.headers if self._lease is not None else None,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                open_timeout=self._open_timeout_s,
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=None,  # openpi's servers do not answer pings while the policy computes
                proxy=None,
            )
            _limit_sending(self._connection.socket, self._act_timeout_s)
            self._dialogue = Dialogue(self._connection.recv(timeout=max(0.0, deadline - time.monotonic())))
        # AssertionError: what websockets raises when a peer that is no websocket hangs up before the request is out.
        except (OSError, UnicodeError, WebSocketException, AssertionError) as error:
            self._abandon()
            raise not_opened(self._url, error) from error
        except BaseException:
            self._abandon()
            raise

    def reset(self) -> None:
        """Begin an episode; connects first when there is no connection.

        Raises:
            PolicyError: as `connect`, or when the connection is lost.
        """
        if self._dialogue is None:
            self.connect()
        with self._talking() as (connection, dialogue):
            connection.send(dialogue.reset())

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the policy's action for an observation.

        Raises:
            PolicyError: as `PolicyClient.act`.
        """
        with self._talking() as (connection, dialogue):
            deadline = time.monotonic() + self._act_timeout_s
            connection.send(dialogue.observe(observation))
            action = None
            while action is None:
                action = dialogue.read(connection.recv(timeout=max(0.0, deadline - time.monotonic())))
            return action

    def update_host(self, host: str, port: int, *, lease: PolicyLease | None = None) -> None:
        """Go to another server: closes the connection; the next `reset` or `connect` opens the new one.

        Raises:
            PolicyUnreachableError: if nothing can be at the address; nothing is changed.
        """
        url = policy_url(host, port)
        self.close()
        self._url, self._lease = url, lease

    def close(self) -> None:
        """Close the connection; legal twice and before `connect`."""
        connection, self._connection, self._dialogue = self._connection, None, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _talking(self) -> Iterator[tuple[ClientConnection, Dialogue]]:
        """Give the open connection for one exchange, and end it when the exchange does not end well."""
        if self._connection is None or self._dialogue is None:
            raise not_open(self._url)
        try:
            yield self._connection, self._dialogue
        except ConnectionClosed as error:
            self._abandon()
            if isinstance(error.__cause__, BlockingIOError):  # sending stood still until the limit of the socket
                raise self._too_late() from error
            raise lost(self._url, error) from error
        except TimeoutError as error:
            self._abandon()
            raise self._too_late() from error
        except BaseException:
            self._abandon()
            raise

    def _too_late(self) -> PolicyTimeoutError:
        return PolicyTimeoutError(f"the policy server at {self._url} did not answer within {self._act_timeout_s:g} s")

    def _abandon(self) -> None:
        """End the connection at once, without goodbye."""
        connection, self._connection, self._dialogue = self._connection, None, None
        if connection is not None:
            connection.close_socket()


def _limit_sending(sock: socket.socket, timeout_s: float) -> None:
    """Let sends fail when the peer takes nothing for so long; websockets itself would wait for ever.

    An option of the socket, as `settimeout` would hold for the thread that receives, too.
    """
    whole_s = int(timeout_s)
    limit = struct.pack("ll", whole_s, max(1, int((timeout_s - whole_s) * 1e6)))
    with suppress(OSError):  # a server that is gone already is told of by the next call
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
