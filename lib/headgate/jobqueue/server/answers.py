"""Answers as they go over the wire: a status and bytes; errors are RFC 9457 problem documents."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Final, Generic, Never, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from headgate.core import redacted
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.jobqueue.wire import FlawOut
from headgate.net.refusals import PROBLEM_TYPE, challenges, problem_document

MOST_FLAWS: Final = 10
_VALUE_CHARS: Final = 100
_RULE_CHARS: Final = 300
_MOST_LISTED: Final = 1000
_ALWAYS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_NO_HEADERS: Final[Mapping[str, str]] = {}

Model_co = TypeVar("Model_co", covariant=True)


class Answer(Response, Generic[Model_co]):
    """What a request is answered, whole; what type of body it has with status 200, its annotation says.

    Args:
        body: of it.
        status: of HTTP.
        headers: beside those that every answer has.
        media_type: empty: JSON, or a problem document from status 400 on.
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
    flaws: list[FlawOut] | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> Answer[Never]:
    """Return a problem document, in the form of `wire.ProblemOut`."""
    errors = [flaw.model_dump() for flaw in flaws or ()]
    return Answer(
        to_json(problem_document(status, detail, code=code, next_step=next_step, errors=errors)), status, headers
    )


def problem_of(error: HeadgateError) -> Answer[Never]:
    """Return the problem document of one of Headgate's own errors."""
    return problem(
        error.http_status,
        error.message,
        code=error.code,
        next_step=error.next_step,
        flaws=error.flaws if isinstance(error, FlawedError) else None,
        headers=headers_of(error),
    )


def headers_of(error: HeadgateError) -> dict[str, str]:
    """Return what the answer to an error says on when to come again."""
    return wait_headers(1.0 if error.http_status in {429, 503} else None)


def wait_headers(retry_after_s: float | None) -> dict[str, str]:
    """Return the header that says when to come again, where that can help."""
    return {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s) or 1)}


class FlawedError(InvalidInputError):
    """What was sent breaks rules: `flaws` are the first of them, `count` is how many were found."""

    next_step = "Correct the values in `errors` and send the request again; nothing was changed."

    def __init__(self, flaws: list[FlawOut], count: int) -> None:
        more = f"; and {count - 1} more" if count > 1 else ""
        super().__init__(f"{flaws[0].field}: {flaws[0].rule}{more}")
        self.flaws = flaws


def flaws_of(error: ValidationError, place: str) -> list[FlawOut]:
    """Return the first flaws that pydantic found; `place` is `body`, `query`, `path` or an entry of a body."""
    if error.error_count() > _MOST_LISTED:  # writing all of them down, only to show ten, would take too long
        return [FlawOut(field=place, rule=f"{error.error_count()} values break its rules", value="")]
    found = error.errors(include_url=False, include_context=False)[:MOST_FLAWS]
    return [
        FlawOut(
            field=".".join((place, *(str(part)[:_VALUE_CHARS] for part in item["loc"]))),
            rule=str(item["msg"]).removeprefix("Value error, ")[:_RULE_CHARS],
            value=_shown(item["input"]),
        )
        for item in found
    ]


def _shown(value: object) -> str:
    """Return the beginning of a value; of a large one no more is written out than that."""
    if isinstance(value, bytes):
        text = value[:_VALUE_CHARS].decode("utf-8", "replace")
    elif isinstance(value, dict | list) and len(value) > MOST_FLAWS:
        text = f"{len(value)} entries"
    elif isinstance(value, dict | list):
        text = reprlib.repr(value)
    else:
        text = repr(value[:_VALUE_CHARS] if isinstance(value, str) else value)
    text = text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
    return redacted(text.encode("utf-8", "replace").decode())
