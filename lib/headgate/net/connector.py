"""Connections to servers that need not be trusted: to no metadata service, and cheap to read."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import time
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

from headgate.core.addresses import is_metadata_address

_SHARE: Final = 0.02
"""Maximum share of the time for parsing what costly connections send, all together; reading takes four times that."""

_BURST_S: Final = 0.05  # of CPU time that a connection may take beyond its share; an answer of 4 MB takes half of it
_LONGEST_REST_S: Final = 30.0
_MOST_HEADS: Final = 16  # unread on one connection: each answer has one, after perhaps a few informational ones
READ_BUFFER_BYTES: Final = 8 * 1024
"""What is parsed before the reader takes it out: at most twice as many bytes, or 512 chunks."""


class Connector(aiohttp.TCPConnector):
    """Opens connections, except to metadata services. Those that are costly to read share a part of the time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(limit=0, ttl_dns_cache=60, socket_factory=_guarded_socket, **options)
        self._factory: Any = partial(_Reader, self._loop, set())


class _Reader(ResponseHandler):
    """Reads one connection, with rests in proportion to the CPU time that this takes: chunks of one byte take long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, costly: set[_Reader]) -> None:
        super().__init__(loop=loop)
        self._costly = costly  # of the same connector
        self._owed_s, self._counted_at = 0.0, time.monotonic()
        self._rests = False
        self._refusal: OSError | None = None

    def data_received(self, data: bytes) -> None:
        began, transport = time.thread_time(), self.transport
        for start in range(0, len(data) or 1, READ_BUFFER_BYTES):
            if transport is None or (start and transport.is_closing()):
                return
            super().data_received(data[start : start + READ_BUFFER_BYTES])
            if len(self._buffer) > _MOST_HEADS:
                self._refusal = OSError(f"more than {_MOST_HEADS} answers to one request; the rest was not read")
                transport.abort()
        # Only costly ones divide it: whoever needs less than all of it is not slowed down by them.
        now, share = time.monotonic(), _SHARE / (len(self._costly) if self in self._costly else 1)
        left_s = max(0.0, self._owed_s - (now - self._counted_at) * share)
        self._owed_s, self._counted_at = left_s + time.thread_time() - began, now
        if self._owed_s <= _BURST_S:
            self._costly.discard(self)
            return
        self._costly.add(self)
        if not self._rests:
            self._rests = True
            self._pause_transport_reading()
            rest_s = (self._owed_s - _BURST_S) * len(self._costly) / _SHARE
            self._loop.call_later(min(rest_s, _LONGEST_REST_S), self._wake)

    def _resume_transport_reading(self) -> None:
        if not self._rests:  # what has been received is parsed nevertheless
            super()._resume_transport_reading()

    def _wake(self) -> None:
        self._rests = False
        if not self._reading_paused and not self._buffer_paused:
            super()._resume_transport_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._costly.discard(self)
        super().connection_lost(self._refusal or exc)


def _guarded_socket(address: Any) -> socket.socket:
    """Return a socket for a resolved address, whatever its name, except of a metadata service, which gives out keys."""
    family, kind, protocol, _, target = address
    host = ipaddress.ip_address(str(target[0]).split("%")[0])
    if is_metadata_address(host):
        raise PermissionError(errno.EACCES, f"link-local or metadata address {host} is never connected to")
    return socket.socket(family=family, type=kind, proto=protocol)
