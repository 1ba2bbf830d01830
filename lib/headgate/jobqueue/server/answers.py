"""Answers as they go over the wire: a status and bytes; errors are RFC 9457 problem documents."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.types import Send

from headgate.core import redacted
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.net.refusals import PROBLEM_TYPE, challenges, problem_document

JSON: Final = b"application/json"
_HELPED_BY_WAITING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
MOST_FLAWS: Final = 10
_VALUE_CHARS: Final = 100
_RULE_CHARS: Final = 300
_MOST_LISTED: Final = 1000
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
        media_type = self.media_type or (JSON if self.status < HTTPStatus.BAD_REQUEST else PROBLEM_TYPE.encode())
        headers = [
            (b"content-type", media_type),
            (b"content-length", b"%d" % len(self.body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers += [(b"www-authenticate", challenge.encode()) for challenge in challenges("headgate job queue")]
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
    document = problem_document(status, detail, code=code, next_step=next_step, errors=errors or ())
    return Answer(status, to_json(document), headers)


def problem_of(error: HeadgateError) -> Answer:
    """Return the problem document of one of Headgate's own errors."""
    headers = {"Retry-After": "1"} if error.http_status in _HELPED_BY_WAITING else _NO_HEADERS
    return problem(error.http_status, error.message, code=error.code, next_step=error.next_step, headers=headers)


class Flaw(NamedTuple):
    """One value that breaks a rule, as a problem document tells it."""

    field: str
    rule: str
    value: str


class FlawedError(Exception):
    """What was sent breaks rules: `flaws` are the first of them, `count` is how many were found."""

    def __init__(self, flaws: list[Flaw], count: int) -> None:
        super().__init__(count)
        self.flaws = flaws
        self.count = count


def flaws_of(error: ValidationError, place: str) -> list[Flaw]:
    """Return the first flaws that pydantic found; `place` is `body`, `query`, `path` or an entry of a body."""
    if error.error_count() > _MOST_LISTED:  # writing all of them down, only to show ten, would take too long
        return [Flaw(place, f"{error.error_count()} values break its rules", "")]
    found = error.errors(include_url=False, include_context=False)[:MOST_FLAWS]
    return [
        Flaw(
            ".".join((place, *(str(part)[:_VALUE_CHARS] for part in item["loc"]))),
            str(item["msg"]).removeprefix("Value error, ")[:_RULE_CHARS],
            _shown(item["input"]),
        )
        for item in found
    ]


def problem_of_flaws(error: FlawedError) -> Answer:
    """Return the problem document that names the first values which break a rule, and the rules."""
    first = error.flaws[0]
    more = f"; and {error.count - 1} more" if error.count > 1 else ""
    return problem(
        422,
        f"{first.field}: {first.rule}{more}",
        code=InvalidInputError.code,
        next_step="Correct the values in `errors` and send the request again; nothing was changed.",
        errors=[flaw._asdict() for flaw in error.flaws],
    )


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
