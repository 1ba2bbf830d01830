"""Frames over a network between a run and a host of environments, after mutual authentication.

Each side proves that it knows the token of this connection without sending it: an HMAC over both sides' nonces, with a
different label for each side, so that no proof can be replayed. Before that, a peer gets nothing but random bytes, and
only its nonce and proof are read. Then the run sends first. The frames are neither encrypted nor signed, like Ray's own
traffic: the network between the machines is trusted as far as the cluster trusts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from headgate.environments.apart import frames
from headgate.environments.apart.frames import Frame

TOKEN_BYTES: Final = 32
PROOF_S: Final = 5.0
"""Time limit for both proofs; a slower peer is disconnected."""

_NONCE_BYTES: Final = 32
_DIGEST: Final = "sha256"
_PROOF_BYTES: Final = 32


async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    """Return whether the peer has proved that it knows the token; if so, this side has proved it as well."""
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        async with asyncio.timeout(PROOF_S):
            ours = secrets.token_bytes(_NONCE_BYTES)
            writer.write(ours)
            theirs = await reader.readexactly(_NONCE_BYTES)
            proof = await reader.readexactly(_PROOF_BYTES)
            if hmac.compare_digest(proof, _proof(token, b"run", ours, theirs)):
                writer.write(_proof(token, b"host", ours, theirs))
                return True
    return False


async def connected(host: str, port: int, token: bytes, stream: FrameStream) -> None:
    """Connect to a host that knows the token, and attach the connection to `stream`.

    Raises:
        ConnectionError: if nothing answers there within `PROOF_S`, or something other than the host does.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(PROOF_S):
            reader, writer = await asyncio.open_connection(host, port)
            theirs, ours = await reader.readexactly(_NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES)
            writer.write(ours + _proof(token, b"run", theirs, ours))
            proof = await reader.readexactly(_PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(token, b"host", theirs, ours)):
            raise ConnectionError(f"the peer at {host}:{port} is not the host that was started")
        stream.begin(writer)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        if writer is not None:
            writer.transport.abort()
        if isinstance(error, ConnectionError) and error.args:
            raise
        raise ConnectionError(f"no host answers at {host}:{port} ({type(error).__name__})") from error


def _proof(token: bytes, side: bytes, host_nonce: bytes, run_nonce: bytes) -> bytes:
    return hmac.digest(token, side + host_nonce + run_nonce, _DIGEST)


class FrameStream(asyncio.Protocol):
    """One connection. Belongs to its event loop; created before the connection, and not reusable.

    If several frames arrive at once, the frames sent in the next turn of the loop are written together. Unreadable data
    ends the connection.
    """

    def __init__(self, take: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        """Prepare for a connection.

        Args:
            take: called with each incoming frame; an exception from it ends the connection.
            lost: called once, with the reason, when the connection has ended.
        """
        self._take = take
        self._lost = lost
        self._writer: asyncio.StreamWriter | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._outgoing: list[bytes] = []
        self._incoming = bytearray()
        self._why = ""
        self._is_flushed_later = False

    def begin(self, writer: asyncio.StreamWriter) -> None:
        """Take over a connection that has no unread data."""
        self._writer = writer  # kept, since a collected writer closes the connection
        self._transport = writer.transport
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        """Send a packed frame after all earlier ones; does nothing when the connection has ended."""
        if self._is_flushed_later:
            self._outgoing.append(data)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Abort the connection, dropping unsent data; idempotent."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def finish(self, why: str) -> None:
        """Close the connection once everything is sent."""
        self._why = self._why or why
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass on the frames that have arrived completely."""
        incoming: bytes | bytearray = data
        if self._incoming:
            self._incoming += data
            incoming = self._incoming
        at = count = 0
        try:
            while len(incoming) - at >= frames.HEADER.size and not self._why:
                start = at + frames.HEADER.size
                end = start + int.from_bytes(incoming[at:start])
                if end > len(incoming):
                    frames.length(incoming, at)  # refuses an overlong frame before reading it
                    break
                self._take(frames.unpacked(incoming[start:end]))
                at, count = end, count + 1
        except Exception as error:  # noqa: BLE001 - not a frame, or an unexpected one
            self.close(f"it sent an unreadable frame ({type(error).__name__}: {str(error)[:100]})")
        if incoming is self._incoming:
            del self._incoming[:at]
        else:
            self._incoming += data[at:]
        if count > 1 and not self._is_flushed_later:
            # The receivers reply in the next turn of the loop, and the flush runs in the turn after that.
            self._is_flushed_later = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._flush)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, with its reason."""
        self._why = self._why or (f"its connection broke ({exc})" if exc else "its connection ended")
        self._lost(self._why)

    def _flush(self) -> None:
        self._is_flushed_later = False
        data, self._outgoing = b"".join(self._outgoing), []
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
