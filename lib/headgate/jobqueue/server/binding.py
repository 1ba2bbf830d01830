"""Where a server may listen: beyond this machine only when it asks for tokens."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from headgate.core.errors import InvalidSettingError

_BACKLOG: Final = 4096
"""Connections that wait to be accepted: workers of a whole cluster may come at once."""


def is_loopback(host: str) -> bool:
    """Return whether `host` names this machine only; a name other than localhost does not count."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, usable_tokens: int) -> None:
    """Return when a server may listen on `host`.

    Raises:
        InvalidSettingError: if other machines could reach it and there is no token that it could ask for.
    """
    if not usable_tokens and not is_loopback(host):
        raise InvalidSettingError(
            f"without any token the job queue may only listen on a loopback address (got {host!r})",
            next_step="Create one with `headgate jobqueue token create NAME --scopes admin` and start the server "
            "again, or listen on 127.0.0.1.",
        )


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        InvalidSettingError: if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message, step = f"port {port} of {host} is in use", "Choose another port, or 0 for any free one."
        else:
            message, step = f"cannot listen on {host} port {port} ({error})", "Choose an address of this machine."
        raise InvalidSettingError(message, next_step=step) from error


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, without a slash at its end."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
