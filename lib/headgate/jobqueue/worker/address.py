"""Where the job queue is, and the token that it wants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from headgate.core import Secret
from headgate.core.errors import InvalidInputError

URL_VARIABLES: Final = ("HEADGATE_JOBQUEUE_URL", "JOB_QUEUE_URL")
"""Environment variables that name the server, the first one that is set; the second is the legacy protocol's."""

TOKEN_VARIABLE: Final = "HEADGATE_JOBQUEUE_TOKEN"  # noqa: S105 - its name
DEFAULT_URL: Final = "http://127.0.0.1:8000"
_WHOLE_TOKEN: Final = f"Copy it whole into {TOKEN_VARIABLE}, as `headgate jobqueue token create` printed it."


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A job queue's server.

    Attributes:
        url: scheme, host, port and path, without a token and without a slash at the end.
        token: sent with every request; empty when the server needs none.
    """

    url: str
    token: Secret = field(default_factory=lambda: Secret(""))

    @classmethod
    def of(cls, text: str, token: str = "") -> QueueAddress:
        """Return the address in a URL, which may carry the token as `http://user:TOKEN@host`.

        Args:
            text: the URL.
            token: in place of the one in the URL.

        Raises:
            InvalidInputError: if it is no URL of HTTP, or the token has characters that no token has.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError:
            raise _no_address(text) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_address(text)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if port is None else f"{host}:{port}"
        token = token or unquote(parts.password or parts.username or "")
        if not token.isascii():
            raise InvalidInputError(
                "the token of the job queue has characters that no token has", next_step=_WHOLE_TOKEN
            )
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", Secret(token))

    @property
    def headers(self) -> dict[str, str]:
        """Headers that every request carries."""
        return {"Authorization": f"Bearer {self.token.reveal()}"} if self.token else {}


def queue_address(url: str | None = None, environ: Mapping[str, str] | None = None) -> QueueAddress:
    """Return the address that is given, or the one that the environment names, or the server of this machine.

    Raises:
        InvalidInputError: if it is no URL of HTTP.
    """
    environ = os.environ if environ is None else environ
    named = (environ.get(name, "").strip() for name in URL_VARIABLES)
    found = url or next((one for one in named if one), DEFAULT_URL)
    return QueueAddress.of(found, environ.get(TOKEN_VARIABLE, "").strip())


def _no_address(text: str) -> InvalidInputError:
    # What stands before the @ may be a token.
    return InvalidInputError(
        f"the address of a job queue must be a URL with http or https (got {text.rpartition('@')[2][:200]!r})",
        next_step=f"Write http://host:8000, or set {URL_VARIABLES[0]}.",
    )
