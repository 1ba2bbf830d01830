"""What a gateway writes: errors as OpenAI shapes them and as RFC 9457 does, and what it tells of a model."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import web

from headgate.core import redacted
from headgate.core.errors import HeadgateError
from headgate.elastic.errors import PoolFullError
from headgate.net.refusals import PROBLEM_TYPE, challenges, problem_document

AGAIN_S: Final = 5.0
"""When a client may come again that was sent away because the gateway stops: it takes about so long to start anew."""

FULL_S: Final = 1.0
"""When it may come again that found the pool full, where nobody knows better."""

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def json_answer(body: bytes, status: int = 200, content_type: str = "application/json") -> web.Response:
    """Return an answer with a JSON body."""
    return web.Response(body=body, status=status, content_type=content_type)


def openai_body(error: HeadgateError) -> bytes:
    """Return an error as OpenAI shapes it, with Headgate's code and the next step in its sentence."""
    return _openai_body(error.http_status, error.code, redacted(str(error)))


def _openai_body(status: int, code: str, message: str) -> bytes:
    kind = _TYPES.get(status, "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def refusal(error: HeadgateError) -> web.Response:
    """Return the answer of the OpenAI API that an error is."""
    answer = json_answer(openai_body(error), error.http_status)
    _add_headers(answer, error)
    return answer


def failure(status: int, message: str) -> web.Response:
    """Return the answer of the OpenAI API for what is no error of Headgate's own."""
    return json_answer(_openai_body(status, HTTPStatus(status).phrase.lower().replace(" ", "_"), message), status)


def error_event(error: HeadgateError) -> bytes:
    """Return the server-sent event that ends a stream which broke."""
    return b"data: " + openai_body(error) + b"\n\n"


def model_document(model: str, pool: str, started_at: float) -> dict[str, Any]:
    """Return what the OpenAI API tells of a model."""
    return {"id": model, "object": "model", "created": int(started_at), "owned_by": f"headgate-elastic {pool}"}


def problem(error: HeadgateError, flaws: list[dict[str, str]] | None = None) -> web.Response:
    """Return an error as a problem document (RFC 9457)."""
    answer = _problem(error.http_status, error.code, error.message, error.next_step, flaws)
    _add_headers(answer, error)
    return answer


def plain_problem(status: int, detail: str) -> web.Response:
    """Return a problem document for what is no error of Headgate's own."""
    return _problem(status, HTTPStatus(status).phrase.lower().replace(" ", "_"), detail, "", None)


def _problem(status: int, code: str, detail: str, next_step: str, flaws: list[dict[str, str]] | None) -> web.Response:
    document = problem_document(status, detail, code=code, next_step=next_step, errors=flaws or ())
    return json_answer(orjson.dumps(document), status, PROBLEM_TYPE)


def _add_headers(answer: web.Response, error: HeadgateError) -> None:
    """Say when to come again, where that helps, and what an answer without a token has to say."""
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        for challenge in challenges("headgate elastic pool"):
            answer.headers.add("WWW-Authenticate", challenge)
    elif (seconds := _retry_after_s(error)) is not None:
        # The header's own form is whole seconds; a fraction goes into the form that OpenAI's clients read first.
        answer.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
        answer.headers["retry-after-ms"] = str(round(seconds * 1000))


def _retry_after_s(error: HeadgateError) -> float | None:
    if isinstance(error, PoolFullError):
        return error.retry_after_s if error.retry_after_s is not None else FULL_S
    return AGAIN_S if error.http_status == HTTPStatus.SERVICE_UNAVAILABLE else None
