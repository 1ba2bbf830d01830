"""Addresses of policy servers that must not be called: link-local ones, where clouds hand out credentials."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.core import IPAddress, ip_address_of, is_metadata_address, is_metadata_host
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.resource import ResourceSpec


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
            raise _refusal(spec)


def _refusal(spec: ResourceSpec) -> InvalidJobError:
    return InvalidJobError(
        f"policy server {spec.host}:{spec.port} has a link-local, metadata or unspecified address",
        next_step="Name its real address, or allow such addresses with the server's setting `allow_link_local`.",
    )
