"""Who may ask an HTTP server of Headgate, everyone on this machine or whoever has the token; its errors as problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hmac import compare_digest
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.core import Secret, errors
from headgate.net.hosts import HostNames, check_site
from headgate.net.refusals import PROBLEM_TYPE, problem_document, token_of

Identify = Callable[[str], Awaitable[bool]]
"""Returns whether an `Authorization` header carries a token that may ask."""

_SAFE_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def problem(
    status: int, detail: str, *, code: str = "", next_step: str = "", errors: Sequence[dict[str, str]] = ()
) -> JSONResponse:
    """Return the answer that is a problem document, with what there is to say."""
    document = problem_document(status, detail, code=code, next_step=next_step, errors=errors)
    return JSONResponse({name: said for name, said in document.items() if said}, status, media_type=PROBLEM_TYPE)


def problem_of(error: errors.HeadgateError) -> JSONResponse:
    """Return the problem document of one of Headgate's own errors."""
    response = problem(error.http_status, error.message, code=error.code, next_step=error.next_step)
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def answer_with_problems(app: FastAPI) -> None:
    """Make every error that `app` answers with a problem document; what was unexpected is logged, not shown."""

    async def ours(_: Request, error: Exception) -> Response:
        if not isinstance(error, errors.HeadgateError):
            raise error
        return problem_of(error)

    async def http(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        response = problem(error.status_code, str(error.detail))
        response.headers.update(error.headers or {})
        return response

    async def invalid(_: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        # The values themselves are left out: they may be a token in the wrong place.
        wrong = [{"where": ".".join(str(part) for part in item["loc"]), "rule": item["msg"]} for item in error.errors()]
        detail = "; ".join(f"{item['where']}: {item['rule']}" for item in wrong)
        return problem(422, detail, code=errors.InvalidInputError.code, errors=wrong)

    async def unexpected(_: Request, __: Exception) -> Response:
        # Starlette raises the error again after this answer, and the server logs it with its traceback.
        return problem(500, "the server failed to answer", code="internal", next_step="The server's log says why.")

    app.add_exception_handler(errors.HeadgateError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)


class Guard:
    """ASGI layer in front of every route, known or not, except those in `open_paths`.

    With a token, or with `identify`, which knows others, it asks for `Authorization: Bearer`. Without either it serves
    only requests whose Host header names this server.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: Secret | None,
        open_paths: frozenset[str],
        *,
        identify: Identify | None = None,
        names: HostNames,
    ) -> None:
        self._app = app
        self._identify = identify
        self._names = names
        self._expected = token.reveal().encode() if token else None
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
        try:
            check_site(headers.get, scope["method"])
            if scope["path"] not in self._open_paths:
                await self._check(headers)
        except errors.HeadgateError as error:
            await problem_of(error)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    async def _check(self, headers: Headers) -> None:
        if self._expected is None and self._identify is None:
            self._names.check(headers.get("host"))
        elif not (
            self._is_authorized(headers) or (self._identify and await self._identify(headers.get("authorization", "")))
        ):
            raise errors.UnauthorizedError("the request carries no valid token")

    def _is_authorized(self, headers: Headers) -> bool:
        given = token_of(headers.get("authorization")) or ""
        return self._expected is not None and compare_digest(given.encode(), self._expected)
