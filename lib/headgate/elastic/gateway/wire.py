"""The answers of a gateway: JSON, and errors in OpenAI's form and as problem documents (RFC 9457)."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final, NamedTuple

import orjson
from aiohttp import web

from headgate.core import redacted
from headgate.core.errors import HeadgateError
from headgate.elastic.errors import PoolFullError
from headgate.net.refusals import PROBLEM_TYPE, challenges, problem_document
from headgate.net.request_flaws import FlawedError

AGAIN_S: Final = 5.0
"""Retry-After for clients refused because the gateway stops: about the time that a restart takes."""

FULL_S: Final = 1.0
"""Retry-After for clients that found the pool full, if no better estimate is known."""

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class HttpFailure(NamedTuple):
    """An error of the HTTP server itself, such as an unknown path or an incomplete body."""

    http_status: int
    message: str
    next_step: str = ""

    @property
    def code(self) -> str:
        """Return the name of its status, such as `not_found`."""
        return HTTPStatus(self.http_status).phrase.lower().replace(" ", "_")


def json_answer(body: bytes, status: int = 200, content_type: str = "application/json") -> web.Response:
    """Return an answer with a JSON body."""
    return web.Response(body=body, status=status, content_type=content_type)


def openai_body(error: HeadgateError | HttpFailure) -> bytes:
    """Return an error in OpenAI's form, with Headgate's code, and the next step in the message."""
    status = error.http_status
    kind = _TYPES.get(status, "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error")
    message = redacted(error.message if isinstance(error, HttpFailure) else str(error))
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": error.code}})


def refusal(error: HeadgateError | HttpFailure) -> web.Response:
    """Return an error as an answer of the OpenAI API."""
    return _with_headers(json_answer(openai_body(error), error.http_status), error)


def error_event(error: HeadgateError) -> bytes:
    """Return the server-sent event that ends a broken stream."""
    return b"data: " + openai_body(error) + b"\n\n"


def problem(error: HeadgateError | HttpFailure) -> web.Response:
    """Return an error as a problem document (RFC 9457)."""
    flaws = error.flaws if isinstance(error, FlawedError) else ()
    document = problem_document(
        error.http_status, error.message, code=error.code, next_step=error.next_step, errors=flaws
    )
    return _with_headers(json_answer(orjson.dumps(document), error.http_status, PROBLEM_TYPE), error)


def _with_headers(answer: web.Response, error: HeadgateError | HttpFailure) -> web.Response:
    """Add Retry-After where a retry helps, and WWW-Authenticate to a 401."""
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        for challenge in challenges("headgate elastic pool"):
            answer.headers.add("WWW-Authenticate", challenge)
    elif (seconds := _retry_after_s(error)) is not None:
        # The header's own form is whole seconds; a fraction goes into the form that OpenAI's clients read first.
        answer.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
        answer.headers["retry-after-ms"] = str(round(seconds * 1000))
    return answer


def _retry_after_s(error: HeadgateError | HttpFailure) -> float | None:
    if isinstance(error, PoolFullError):
        return error.retry_after_s if error.retry_after_s is not None else FULL_S
    return AGAIN_S if error.http_status == HTTPStatus.SERVICE_UNAVAILABLE else None
