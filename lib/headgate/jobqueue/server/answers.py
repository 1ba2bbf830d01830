"""Answers as they are sent: a status and bytes; errors are RFC 9457 problem documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Generic, Never, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from headgate.core.errors import HeadgateError
from headgate.net.refusals import PROBLEM_TYPE, challenges, problem_document
from headgate.net.request_flaws import Flaw, FlawedError

_ALWAYS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_NO_HEADERS: Final[Mapping[str, str]] = {}

Model_co = TypeVar("Model_co", covariant=True)


class Answer(Response, Generic[Model_co]):
    """The whole answer to a request; its type parameter is the model of the body with status 200.

    Args:
        body: the bytes of its body.
        status: HTTP status.
        headers: in addition to those that every answer has.
        media_type: empty means JSON, or a problem document from status 400 on.
    """

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS, media_type: str = ""
    ) -> None:
        media_type = media_type or ("application/json" if status < 400 else PROBLEM_TYPE)
        super().__init__(body, status, {**_ALWAYS, **headers}, media_type)
        if status == 401:
            for challenge in challenges("headgate job queue"):
                self.headers.append("www-authenticate", challenge)


ModelT = TypeVar("ModelT", bound=BaseModel)


def ok(model: ModelT) -> Answer[ModelT]:
    """Return the answer that carries a body of `wire`."""
    return Answer(model.__pydantic_serializer__.to_json(model))


def problem(
    status: int,
    detail: str,
    *,
    code: str,
    next_step: str = "",
    flaws: Sequence[Flaw] = (),
    headers: Mapping[str, str] = _NO_HEADERS,
) -> Answer[Never]:
    """Return a problem document, in the form of `wire.ProblemOut`."""
    return Answer(
        to_json(problem_document(status, detail, code=code, next_step=next_step, errors=flaws)), status, headers
    )


def problem_of(error: HeadgateError) -> Answer[Never]:
    """Return the problem document of one of Headgate's own errors."""
    return problem(
        error.http_status,
        error.message,
        code=error.code,
        next_step=error.next_step,
        flaws=error.flaws if isinstance(error, FlawedError) else (),
        headers=headers_of(error),
    )


def headers_of(error: HeadgateError) -> dict[str, str]:
    """Return the headers of an error's answer that say when to retry."""
    return wait_headers(1.0 if error.http_status in {429, 503} else None)


def wait_headers(retry_after_s: float | None) -> dict[str, str]:
    """Return the header that tells the client when to retry, where that can help."""
    return {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s) or 1)}
