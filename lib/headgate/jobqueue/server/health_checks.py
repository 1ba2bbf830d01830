"""Checks policy servers: one that does not answer is not handed out, one at a link-local address never called."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from headgate.core.addresses import IPAddress, ip_address_of, is_metadata_address, is_metadata_host
from headgate.jobqueue.errors import InvalidJobError, StoreFailedError, UnknownResourceError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState
from headgate.jobqueue.server.service import Service


def is_refused(host: str) -> bool:
    """Return whether a host, as it is written, names a link-local or metadata address, or no host at all."""
    name = host.removeprefix("wss://")
    address = ip_address_of(name.strip("[]").rstrip(".").lower())
    return is_metadata_host(name) or (address is not None and is_refused_address(address))


def is_refused_address(address: IPAddress) -> bool:
    """Return whether an address is link-local, a metadata service's, unspecified or multicast."""
    address = getattr(address, "ipv4_mapped", None) or address
    return is_metadata_address(address) or address.is_unspecified or address.is_multicast


def check_addresses(specs: Iterable[ResourceSpec], *, allow_link_local: bool) -> None:
    """Return when no server is registered at an address that must not be called.

    Names are not resolved here: what a name means may change, so whoever calls it must look again.

    Raises:
        InvalidJobError: naming the first that has.
    """
    if allow_link_local:
        return
    for spec in specs:
        if is_refused(spec.host):
            raise InvalidJobError(
                f"policy server {spec.host}:{spec.port} has a link-local, metadata or unspecified address",
                next_step="Name its real address, or allow such addresses with the server's setting "
                "`allow_link_local`.",
            )


_log = logging.getLogger("headgate.jobqueue")

NOTE: Final = "health check: "
"""How the note of a server begins that a check took down; only such servers are opened by a check."""

_JITTER: Final = 0.2

_NO_HTTP: Final = "answers something else than HTTP"

_UPGRADE: Final = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: aGVhZGdhdGUgY2hlY2tzLg==\r\n"
    "Sec-WebSocket-Version: 0"
)
"""Of a version that nobody speaks: who takes WebSockets says so, and does not begin an episode."""


class HealthChecks:
    """Checks all servers of one queue, over and over. Lives on the server's event loop.

    A server is alive when `GET /healthz` is answered with a status below 500: not all servers know that path. One that
    answers 404 is asked for a WebSocket, too, and is none when it does not know that either.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._failures: Counter[str] = Counter()
        self._gate = asyncio.Semaphore(service.settings.health_checks_at_once)

    async def run(self) -> None:
        """Check every server again and again, until cancelled."""
        every_s = self._service.settings.health_check_every_s
        while every_s:
            await asyncio.sleep(every_s * (1 + _JITTER * (random.random() - 0.5)))
            try:
                await self.check_all()
            except* StoreFailedError as errors:  # of the listing, or of the checks that wanted to change a server
                _log.warning("No health checks: %s", errors.exceptions[0])

    async def check_all(self) -> None:
        """Check every server once, and take down or open what has changed."""
        resources = await self._service.writer.do(lambda ledger, _: list(ledger.resources().values()))
        self._failures = Counter({one.resource_id: self._failures[one.resource_id] for one in resources})
        async with asyncio.TaskGroup() as tasks:
            for resource in resources:
                tasks.create_task(self._check(resource))

    async def _check(self, resource: Resource) -> None:
        settings = self._service.settings
        async with self._gate:
            trouble = await trouble_of(
                resource.spec.host,
                resource.spec.port,
                settings.health_check_timeout_s,
                allow_link_local=settings.allow_link_local,
            )
        if not trouble:
            self._failures[resource.resource_id] = 0
            if resource.state is ResourceState.DOWN and resource.note.startswith(NOTE):
                await self._change(resource, ResourceState.OPEN, "")
            return
        self._failures[resource.resource_id] += 1
        is_out = self._failures[resource.resource_id] >= settings.health_check_failures
        if is_out and resource.state is ResourceState.OPEN:
            await self._change(resource, ResourceState.DOWN, NOTE + trouble)

    async def _change(self, seen: Resource, state: ResourceState, note: str) -> None:
        def operation(ledger: Ledger, at: Instant) -> bool:
            now = ledger.resources().get(seen.resource_id)
            # Whoever has changed it meanwhile, an operator, knows better.
            if now is None or (now.state, now.note) != (seen.state, seen.note):
                return False
            ledger.change_resource(seen.resource_id, state, at, note)
            return True

        try:
            has_changed = await self._service.writer.do(operation)
        except UnknownResourceError:
            return
        if has_changed:
            self._service.metrics.checked(state.value)
            _log.warning("Resource %s is %s now%s", seen.resource_id, state.value, f": {note}" if note else "")


async def trouble_of(host: str, port: int, timeout_s: float, *, allow_link_local: bool = False) -> str:
    """Return what is wrong with a policy server, in a few words; empty when it is alive."""
    try:
        async with asyncio.timeout(timeout_s):
            scheme, _, name = host.rpartition("://")
            return await _asked(name.strip("[]"), port, bool(scheme), allow_link_local=allow_link_local)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, UnicodeError) as error:
        return f"cannot be reached ({getattr(error, 'strerror', None) or type(error).__name__})"


async def _asked(host: str, port: int, speaks_tls: bool, *, allow_link_local: bool) -> str:
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address = addresses[0][4][0]
    if not allow_link_local and is_refused_address(ipaddress.ip_address(str(address).partition("%")[0])):
        return "its name has a link-local or metadata address"
    # The address that was looked at, not the name: it could mean another one by now.
    tls: dict[str, Any] = {"ssl": ssl.create_default_context(), "server_hostname": host} if speaks_tls else {}
    for path, more in (("/healthz", "Connection: close"), ("/", _UPGRADE)):
        reader, writer = await asyncio.open_connection(str(address), port, limit=4096, **tls)
        try:
            shown = f"[{host}]" if ":" in host else host
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {shown}:{port}\r\n{more}\r\n\r\n".encode("latin-1"))
            await writer.drain()
            parts = (await reader.readline()).split()
        except ValueError:
            return _NO_HTTP
        finally:
            writer.close()
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
            return _NO_HTTP
        status = int(parts[1])
        if status != 404:
            return f"answers {path} with status {status}" if status >= 500 else ""
    return "answers /healthz and a WebSocket at / with status 404"
