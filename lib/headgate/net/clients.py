"""Clients of Headgate's own services."""

from __future__ import annotations

from typing import Any

import httpx

from headgate.core.addresses import has_user
from headgate.core.errors import InvalidInputError


def client_of(address: str, token: str, *, timeout_s: float, **further: Any) -> httpx.AsyncClient:
    """Return a client of a service; paths are relative to the service's address.

    It ignores proxies from the environment, which are for external hosts, but honours SSL_CERT_FILE.

    Args:
        address: `http://HOST:PORT` or `https://HOST:PORT`.
        token: the service's token; may be empty.
        timeout_s: timeout of each call.
        further: more arguments of httpx's client, such as `limits`.

    Raises:
        InvalidInputError: the address has another form.
    """
    if not address.startswith(("http://", "https://")) or has_user(address):
        raise InvalidInputError(
            f"the address of a service must be http://HOST:PORT or https://HOST:PORT, without a user "
            f"or password (got {address.rpartition('@')[2]!r})",
            next_step="Correct the address and run the command again; a token has a setting or variable of its own.",
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # Loading certificates is slow, and there may be a client for each of many runs.
    verify = False if address.startswith("http://") else httpx.create_ssl_context()
    return httpx.AsyncClient(
        base_url=address, headers=headers, timeout=timeout_s, trust_env=False, verify=verify, **further
    )
