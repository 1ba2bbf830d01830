"""What a web page could make somebody's browser send here, in that person's name or on that person's machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from headgate.jobqueue.authority import EVERYBODY, Caller
from headgate.jobqueue.errors import ForbiddenError
from headgate.jobqueue.server.binding import is_loopback
from headgate.jobqueue.server.errors import MisdirectedError

_OTHER_SITES: Final = frozenset({b"cross-site", b"same-site"})


def check_site(headers: Mapping[bytes, bytes]) -> None:
    """Return unless a browser says that a page of another site wants this change.

    The legacy protocol's requests have no body, so a browser would send them for any page without asking, with the
    password that its user gave to see ours.

    Raises:
        ForbiddenError: the browser says so (`Sec-Fetch-Site`).
    """
    if headers.get(b"sec-fetch-site") in _OTHER_SITES:
        raise ForbiddenError(
            "a page of another site sent this",
            next_step="Only programs and pages of this server may change it.",
        )


def check_host(caller: Caller, headers: Mapping[bytes, bytes]) -> None:
    """Return when a request that needs no token was meant for this machine.

    A page that points a name of its own at 127.0.0.1 reaches the port, and its browser takes it for the page's own.

    Raises:
        MisdirectedError: it names another host.
    """
    if caller is not EVERYBODY:
        return
    host = headers.get(b"host", b"").decode("latin-1")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name is None or not is_loopback(name):
        raise MisdirectedError(f"without tokens this server answers to loopback names only (got {host[:60]!r})")
