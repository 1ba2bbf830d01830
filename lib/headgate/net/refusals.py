"""When a server requires a token, and how it refuses requests: with problem documents (RFC 9457)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from headgate.core import redacted
from headgate.core.errors import InvalidSettingError
from headgate.net.hosts import is_loopback

PROBLEM_TYPE: Final = "application/problem+json"


def check_binding(host: str, what: str, *, is_guarded: bool, next_step: str) -> None:
    """Check that a server may listen on `host`.

    Raises:
        InvalidSettingError: if other machines could reach it and it requires no token.
    """
    if not is_guarded and not is_loopback(host):
        raise InvalidSettingError(
            f"without a token {what} may only listen on a loopback address (got {host!r})", next_step=next_step
        )


def token_of(authorization: str | None) -> str | None:
    """Return the token of an `Authorization` header, or None when it carries none.

    It is the credential of `Bearer`, or the password of `Basic`: programs that only take a URL write
    `http://worker:TOKEN@host`, and browsers prompt for it.
    """
    scheme, _, credential = (authorization or "").strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return credential.strip() or None
        case "basic":
            return _password(credential.strip()) or None
        case _:
            return None


def challenges(realm: str) -> tuple[str, str]:
    """Return the challenges of a 401: a bearer token for programs; for browsers a password, which is the token.

    Each needs a header of its own: Chromium understands no challenge when a header has several.
    """
    return "Bearer", f'Basic realm="{realm}"'


def problem_document(
    status: int, detail: str, *, code: str = "", next_step: str = "", errors: Sequence[dict[str, str]] = ()
) -> dict[str, Any]:
    """Return a problem document: what went wrong, its code, and what to do; `errors` are values that break a rule."""
    return {
        "type": f"urn:headgate:error:{code}" if code else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": redacted(detail),
        "code": code,
        "next_step": redacted(next_step),
        "errors": list(errors),
    }


def _password(credential: str) -> str:
    try:
        return base64.b64decode(credential, validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
