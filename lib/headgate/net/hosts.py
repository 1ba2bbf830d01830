"""Which host names a server answers to, and protection from requests that a web page makes a browser send."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from headgate.core.addresses import ip_address_of
from headgate.core.errors import CrossSiteError, MisdirectedError

Header = Callable[[str], str | None]
"""Returns the value of a header by its name in lower case, or None."""

_OTHER_SITES: Final = frozenset({"cross-site", "same-site"})


def is_loopback(host: str) -> bool:
    """Return whether `host` names this machine only; a name other than localhost does not count."""
    address = ip_address_of(host.strip("[]"))
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def advertised_name() -> str:
    """Return how other machines address this one: by its host name, or a Kubernetes pod by its IP address."""
    name = socket.gethostname()
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        with suppress(OSError):
            return socket.gethostbyname(name)
    return name


class HostNames:
    """The host names that a server answers to when it requires no token.

    A web page whose own name resolves to this machine (DNS rebinding) reaches the port, and the browser takes the
    server for the page's own. Addresses and names without a dot cannot be such a page's; `told` are further names.
    """

    def __init__(self, *told: str) -> None:
        self._told = {name.lower().rstrip(".") for name in (*told, socket.gethostname())}

    def check(self, host: str | None) -> None:
        """Check that a `Host` header names this server.

        Raises:
            MisdirectedError: it names another one, or none.
        """
        name = _authority(f"//{host}")[0] if host else ""
        if not (name and ("." not in name or name in self._told or ip_address_of(name))):
            shown = (host or "")[:60]
            raise MisdirectedError(f"without tokens this server answers to its own names only (got {shown!r})")


def check_site(header: Header, method: str) -> None:
    """Refuse requests from a page of another site, and changes by a browser with a remembered password.

    Raises:
        CrossSiteError: the browser says so in `Sec-Fetch-Site` or `Origin`, or sends `Basic` credentials.
    """
    origin, site = header("origin"), header("sec-fetch-site")
    if origin is not None and _authority(origin) != _authority(f"{origin.partition(':')[0]}://{header('host')}"):
        raise CrossSiteError(f"a page of another site sent this (Origin: {origin[:60]!r})")
    if method in {"GET", "HEAD"}:
        return
    if site in _OTHER_SITES:
        raise CrossSiteError("a page of another site sent this")
    is_browser = origin is not None or site is not None or (header("user-agent") or "").startswith("Mozilla/")
    if is_browser and (header("authorization") or "").lower().startswith("basic"):
        raise CrossSiteError("a browser sent this with the password that it remembers")


def console_hint(server: str, option: str, address: str) -> bytes:
    """Return a server's answer to people who open its address in a browser: the console's command for it."""
    command = f"headgate console --{option} {address.rstrip('/')}"
    return f"This is a Headgate {server}. The console shows it, and changes it:\n\n    {command}\n".encode()


def _authority(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL; an empty host where there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None
    return (parts.hostname or "").rstrip("."), port
