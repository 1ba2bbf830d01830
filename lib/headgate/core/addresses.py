"""Hosts and addresses: a canonical form, and detection of metadata services, which hand out cloud credentials."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NAMES: Final = frozenset({"metadata", "metadata.google.internal", "instance-data"})
# AWS over IPv6, Alibaba, Oracle; the others are link-local.
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))


def ip_address_of(host: str) -> IPAddress | None:
    """Return the IP address in a host, in any form that system calls accept (`0x7f000001`), or None for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.ip_address(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_metadata_host(host: str) -> bool:
    """Return whether a host, as written, is a metadata service's; names are not resolved."""
    name = host.strip("[]").rstrip(".").lower()
    address = ip_address_of(name)
    return name in _METADATA_NAMES or (address is not None and is_metadata_address(address))


def is_metadata_address(address: IPAddress) -> bool:
    """Return whether an address is link-local or a metadata service's, also within IPv6 (NAT64, tunnels)."""
    return any(one.is_link_local or one in _METADATA for one in (address, *_within(address)))


def has_user(url: str) -> bool:
    """Return whether a URL has a user or password, which would appear wherever the URL is shown."""
    return "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]


def _within(address: IPAddress) -> tuple[IPAddress, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    translated = ipaddress.IPv4Address(address.packed[-4:]) if any(address in net for net in _NAT64) else None
    found = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()), translated)
    return tuple(one for one in found if one is not None)
