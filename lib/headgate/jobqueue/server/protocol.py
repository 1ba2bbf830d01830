"""HTTP/1.1 with bounds that uvicorn does not have: on the time a request's head takes, and on its size."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S: Final = 10.0
"""Time in which the head of a request must be there, from its first byte or from the opening of the connection."""

HEAD_BYTES: Final = 32 * 1024


def protocol_class() -> type[asyncio.Protocol]:
    """Return the protocol that uvicorn is to speak: on httptools where that is installed."""
    try:
        from headgate.jobqueue.server.protocol_httptools import BoundedProtocol  # noqa: PLC0415 - not on Windows
    except ImportError:
        return H11Protocol
    return BoundedProtocol
