"""Who may ask an HTTP server of Headgate: everyone on this machine, or whoever has the token."""

from __future__ import annotations

import ipaddress
from hmac import compare_digest
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.core import Secret, errors
from headgate.telemetry.problems import problem, problem_of

_SAFE_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def checked_binding(host: str, token: Secret | None) -> None:
    """Return when a server may listen on `host`.

    Raises:
        InvalidSettingError: if other machines could reach it and no token is set.
    """
    if not token and not is_loopback(host):
        raise errors.InvalidSettingError(
            f"the monitoring API may only listen on a loopback address without a token (got {host!r})",
            next_step="Listen on 127.0.0.1, or set a token that every request has to carry.",
        )


def is_loopback(host: str) -> bool:
    """Return whether `host` names this machine only; a name other than localhost does not count."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI layer in front of every route, known or not, except those in `open_paths`.

    With a token it asks for `Authorization: Bearer`. Without one it serves only requests whose Host header is a
    loopback name: a web page that points a name of its own at 127.0.0.1 reaches the port, but is not answered.
    """

    def __init__(self, app: ASGIApp, token: Secret | None, open_paths: frozenset[str]) -> None:
        self._app = app
        self._expected = f"Bearer {token.reveal()}".encode() if token else None
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of `scope`, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
            await send(message)

        headers = Headers(scope=scope)
        if scope["path"] not in self._open_paths:
            if self._expected is not None and not self._is_authorized(headers):
                error = errors.UnauthorizedError("the request carries no valid token")
                await problem_of(error)(scope, receive, send_with_headers)
                return
            if self._expected is None and not _names_loopback(headers.get("host", "")):
                refusal = problem(421, "this server answers to loopback names only", code="misdirected")
                await refusal(scope, receive, send_with_headers)
                return
        await self._app(scope, receive, send_with_headers)

    def _is_authorized(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        normalised = f"{scheme.capitalize()} {token.strip()}".encode()
        return self._expected is not None and compare_digest(normalised, self._expected)


def _names_loopback(host_header: str) -> bool:
    try:
        name = urlsplit(f"//{host_header}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
