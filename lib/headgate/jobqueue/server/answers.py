"""Answers as they go over the wire: a status and bytes; errors are RFC 9457 problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.types import Send

from headgate.core import redacted
from headgate.core.errors import HeadgateError, InvalidInputError

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
CHALLENGES: Final = (b"Bearer", b'Basic realm="headgate job queue"')
"""Programs send a bearer token; browsers ask for a password, which is the token. A header each: of several challenges
in one, Chromium understands none."""

_HELPED_BY_WAITING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_MOST_FLAWS: Final = 100
_VALUE_CHARS: Final = 100
_NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered.

    Attributes:
        status: HTTP status.
        body: the whole of it.
        headers: beside those that every answer has.
        media_type: empty: JSON, or a problem document from status 400 on.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: bytes = b""

    async def send(self, send: Send) -> None:
        """Send it, whole."""
        media_type = self.media_type or (JSON if self.status < HTTPStatus.BAD_REQUEST else PROBLEM)
        headers = [
            (b"content-type", media_type),
            (b"content-length", b"%d" % len(self.body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers += [(b"www-authenticate", challenge) for challenge in CHALLENGES]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def ok(model: BaseModel) -> Answer:
    """Return the answer that carries a body of `wire`."""
    return Answer(200, model.__pydantic_serializer__.to_json(model))


def problem(
    status: int,
    detail: str,
    *,
    code: str,
    next_step: str = "",
    errors: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> Answer:
    """Return a problem document, in the form of `wire.ProblemOut`."""
    document: dict[str, Any] = {
        "type": f"urn:headgate:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": redacted(detail),
        "code": code,
        "next_step": redacted(next_step),
        "errors": errors or [],
    }
    return Answer(status, to_json(document), headers)


def problem_of(error: HeadgateError) -> Answer:
    """Return the problem document of one of Headgate's own errors."""
    headers = {"Retry-After": "1"} if error.http_status in _HELPED_BY_WAITING else _NO_HEADERS
    return problem(error.http_status, error.message, code=error.code, next_step=error.next_step, headers=headers)


def problem_of_flaws(error: ValidationError, *, place: str) -> Answer:
    """Return the problem document that names every value which breaks a rule, and the rule.

    Args:
        error: what pydantic found.
        place: `body`, `query` or `path`.
    """
    found = error.errors(include_url=False, include_context=False)
    flaws = [
        {
            "field": ".".join((place, *map(str, item["loc"]))),
            "rule": str(item["msg"]).removeprefix("Value error, "),
            "value": _shown(item["input"]),
        }
        for item in found[:_MOST_FLAWS]
    ]
    first = flaws[0]
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return problem(
        422,
        f"{first['field']}: {first['rule']}{more}",
        code=InvalidInputError.code,
        next_step="Correct the values in `errors` and send the request again; nothing was changed.",
        errors=flaws,
    )


def _shown(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    text = text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
    return redacted(text.encode("utf-8", "replace").decode())
