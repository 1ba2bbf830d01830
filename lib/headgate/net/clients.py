"""Clients of Headgate's own services."""

from __future__ import annotations

from typing import Any

import httpx

from headgate.core.errors import InvalidInputError


def client_of(address: str, token: str, *, timeout_s: float, **further: Any) -> httpx.AsyncClient:
    """Return a client of a service, whose paths are relative to its address.

    The proxies of the environment are for the world outside; SSL_CERT_FILE holds all the same.

    Args:
        address: `http://HOST:PORT` or `https://HOST:PORT`.
        token: that the service asks for; may be empty.
        timeout_s: of each call.
        further: for httpx's client, such as `limits`.

    Raises:
        InvalidInputError: the address is none.
    """
    if not address.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"the address of a service must be http://HOST:PORT or https://HOST:PORT (got {address!r})",
            next_step="Correct the address and run the command again.",
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # Reading certificates takes long, and there may be a client for each of many runs.
    verify = False if address.startswith("http://") else httpx.create_ssl_context()
    return httpx.AsyncClient(
        base_url=address, headers=headers, timeout=timeout_s, trust_env=False, verify=verify, **further
    )
