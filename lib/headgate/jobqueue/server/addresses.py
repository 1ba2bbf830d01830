"""Addresses of policy servers that must not be called: link-local ones, where clouds hand out credentials."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.resource import ResourceSpec, ip_address_of

_METADATA_NAMES: Final = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200")))


def is_refused(host: str) -> bool:
    """Return whether a host, as it is written, names a link-local or metadata address, or no host at all."""
    name = host.strip("[]").rstrip(".").lower()
    if name in _METADATA_NAMES:
        return True
    address = ip_address_of(name)
    return address is not None and is_refused_address(address)


def is_refused_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is link-local, a metadata service's, unspecified or multicast."""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return is_refused_address(mapped)
    return address.is_link_local or address.is_unspecified or address.is_multicast or address in _METADATA


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
            raise _refusal(spec)


def _refusal(spec: ResourceSpec) -> InvalidJobError:
    return InvalidJobError(
        f"policy server {spec.host}:{spec.port} has a link-local, metadata or unspecified address",
        next_step="Name its real address, or allow such addresses with the server's setting `allow_link_local`.",
    )
