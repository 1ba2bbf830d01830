"""Frames over a network, between a run and a host of environments that have shown each other that they know a secret.

Each side proves that it knows the token of this one connection, without sending it: an HMAC over both sides' random
numbers, with another word for each side, so that no answer can be played back. Before that, nobody gets anything but
random bytes, and no byte of theirs is read but those of a proof. The run speaks first then. What follows is neither
encrypted nor signed, as Ray's own traffic is not: the wire between the machines is trusted as far as the cluster
trusts it.
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
"""For both proofs; whoever takes longer is let go."""

_NONCE_BYTES: Final = 32
_DIGEST: Final = "sha256"
_PROOF_BYTES: Final = 32


async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    """Return whether who has connected knows the token; has shown by then that this side does."""
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
    """Let `stream` go on with a new connection to a host that knows the token.

    Raises:
        ConnectionError: if nobody answers there within seconds, or somebody else does.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(PROOF_S):
            reader, writer = await asyncio.open_connection(host, port)
            theirs, ours = await reader.readexactly(_NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES)
            writer.write(ours + _proof(token, b"run", theirs, ours))
            proof = await reader.readexactly(_PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(token, b"host", theirs, ours)):
            raise ConnectionError(f"who answers at {host}:{port} is not the host that was started")
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
    """One connection. Belongs to its event loop; made before it, and of no use after.

    Where several frames have come at once, what is sent in the next turn of the loop goes out in one piece. Whatever
    cannot be read ends the connection.
    """

    def __init__(self, take: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        """Prepare for a connection.

        Args:
            take: given each frame that comes; what it raises ends the connection.
            lost: told once, why it ended.
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
        """Go on with a connection on which nothing is unread."""
        self._writer = writer  # which would close the connection when it is let go
        self._transport = writer.transport
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        """Send a packed frame after everything before it; silent when the connection has ended."""
        if self._is_flushed_later:
            self._outgoing.append(data)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, why: str) -> None:
        """End the connection, and what was not sent yet with it; legal more than once."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def finish(self, why: str) -> None:
        """End the connection once everything is sent."""
        self._why = self._why or why
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Give out the frames that have come whole."""
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
                    frames.length(incoming, at)  # one that is too long is refused before it is read
                    break
                self._take(frames.unpacked(incoming[start:end]))
                at, count = end, count + 1
        except Exception as error:  # noqa: BLE001 - whatever is no frame, or none that belongs here
            self.close(f"it said what cannot be read ({type(error).__name__}: {str(error)[:100]})")
        if incoming is self._incoming:
            del self._incoming[:at]
        else:
            self._incoming += data[at:]
        if count > 1 and not self._is_flushed_later:
            # Whoever waits for them answers in the next turn of the loop, before what is called for the turn after.
            self._is_flushed_later = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._flush)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so."""
        self._why = self._why or (f"its connection broke ({exc})" if exc else "its connection ended")
        self._lost(self._why)

    def _flush(self) -> None:
        self._is_flushed_later = False
        data, self._outgoing = b"".join(self._outgoing), []
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
