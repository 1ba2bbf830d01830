"""How commands come to the gateway of an elastic pool."""

from __future__ import annotations

import os
from typing import Annotated, Final

from cyclopts import Parameter

from headgate.core import Secret
from headgate.core.errors import InvalidInputError
from headgate.elastic.gateway import GatewayClient

DEFAULT_URL: Final = "http://127.0.0.1:8080"
URL_VARIABLE: Final = "HEADGATE_ELASTIC_URL"
TOKEN_VARIABLE: Final = "HEADGATE_ELASTIC_TOKEN"  # noqa: S105 - the name of a variable

Url = Annotated[
    str | None, Parameter(help=f"The gateway; also {URL_VARIABLE}, with {TOKEN_VARIABLE}. By default {DEFAULT_URL}.")
]
Worker = Annotated[str, Parameter(help="The worker's id, or a part of it that no other one has, such as its port.")]


def asked(url: str | None) -> GatewayClient:
    """Return a client of the gateway at an address, or of the one that the environment names.

    Raises:
        InvalidInputError: the address is none.
    """
    named = url or os.environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
    if not named.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"a gateway's address must be http://host:port (got {named!r})",
            next_step=f"Correct --url or {URL_VARIABLE}.",
        )
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return GatewayClient(named, Secret(token) if token else None)
