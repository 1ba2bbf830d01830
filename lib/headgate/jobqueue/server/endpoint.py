"""Serves one route: lets callers in, reads and checks what they send, answers, counts, and keeps the record.

Written against ASGI itself: a worker's claim and completion are a few hundred microseconds, of which a framework's
dependencies would take most.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from headgate.core.errors import HeadgateError
from headgate.jobqueue.errors import BodyTooLargeError, BodyTooSlowError, HungUp, NotJsonError
from headgate.jobqueue.server.access import check_scope
from headgate.jobqueue.server.answers import (
    Answer,
    FlawedError,
    flaws_of,
    problem,
    problem_of,
    problem_of_flaws,
)
from headgate.jobqueue.server.bodies import ORDINARY_BYTES, SMALL_BYTES, checked
from headgate.jobqueue.server.route import AUDIT, Call, Route, key_of
from headgate.jobqueue.server.service import Service
from headgate.net.authority import EVERYBODY, Caller, Refused
from headgate.net.hosts import check_site
from headgate.net.refusals import token_of

_log = logging.getLogger("headgate.jobqueue")

T = TypeVar("T")

NOBODY: Final = Caller(token_id="", name="", scopes=frozenset())
"""Whoever calls a route that needs no token."""


class Endpoint:
    """An ASGI application for one route."""

    def __init__(self, route: Route, service: Service) -> None:
        self.route = route
        self._service = service
        settings = service.settings
        is_ordinary = route.most_bytes <= ORDINARY_BYTES
        self._most_bytes = min(route.most_bytes, settings.body_bytes if is_ordinary else settings.batch_body_bytes)
        self._lists = frozenset(
            name for name, field in route.query.model_fields.items() if "list" in str(field.annotation)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of `scope`; a client that hung up is answered nothing."""
        started = perf_counter()
        try:
            answer = await self._answer(scope, receive)
        except HungUp:
            return
        except FlawedError as error:
            answer = problem_of_flaws(error)
        except HeadgateError as error:
            answer = problem_of(error)
        except Exception:  # noqa: BLE001 - the boundary of a request: reported, and answered without details
            _log.exception("%s failed", self.route.name)
            answer = problem(
                500, "the server failed to answer", code="internal", next_step="The server's log says why."
            )
        await answer.send(send)
        self._service.metrics.request(self.route.name, answer.status, perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        service, route = self._service, self.route
        headers = dict(scope["headers"])
        if route.scope is None:
            caller = NOBODY
        else:
            verdict = await let_in(service, headers)
            if isinstance(verdict, Answer):
                return verdict
            caller = verdict
            check_browser(service, caller, headers, route.method)
            check_scope(caller, route.scope, is_of_all_teams=route.is_of_all_teams)
        with service.opened(caller):
            raw, body = b"", None
            if route.takes is not None:
                raw, body = await self._body(route.takes, caller, receive, headers)
            given = headers.get(b"idempotency-key")
            key = None
            if given is not None and route.method == "POST":
                key = key_of(given, caller.token_id, route.method, scope["path"], raw)
            path = _checked(route.path.model_validate, scope["path_params"], "path")
            query = _checked(route.query.model_validate, self._query(scope), "query")
            call = Call(service, caller, receive, path, query, body, key, token_in(headers))
            answer = await route.handler(call)
            for record in call.changes:
                await asyncio.to_thread(record)  # it waits for the disk
            if call.action:
                AUDIT.info("token %s: %s", caller.token_id or "none", call.action)
            return answer

    async def _body(
        self, takes: type[BaseModel], caller: Caller, receive: Receive, headers: dict[bytes, bytes]
    ) -> tuple[bytes, BaseModel]:
        """Return the body of a request, as it came and as its model; a large one waits for its token's turn."""
        service, most_bytes, deadline_s = self._service, self._most_bytes, self._service.settings.body_deadline_s
        announced = headers.get(b"content-length", b"")
        if (announced.isdigit() and int(announced) <= SMALL_BYTES) or most_bytes <= SMALL_BYTES:
            raw = await read_body(receive, headers, most_bytes, deadline_s)
            return raw, checked(takes, raw)
        async with service.large_bodies.turn(caller.token_id, deadline_s):
            raw = await read_body(receive, headers, most_bytes, deadline_s)
            return raw, await service.large_bodies.run(lambda: checked(takes, raw))

    def _query(self, scope: Scope) -> dict[str, Any]:
        if not scope["query_string"]:
            return {}
        raw = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return {name: given if name in self._lists or len(given) > 1 else given[0] for name, given in raw.items()}


def check_browser(service: Service, caller: Caller, headers: dict[bytes, bytes], method: str) -> None:
    """Return unless a web page made a browser send a request; raises as `net.hosts`."""

    def header(name: str) -> str | None:
        value = headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    if caller is EVERYBODY:
        service.names.check(header("host"))
    check_site(header, method)


async def let_in(service: Service, headers: dict[bytes, bytes]) -> Caller | Answer:
    """Return who makes a request, or the answer that refuses it."""
    verdict = await service.authority.identify_async(token_in(headers), service.clock.wall())
    return refusal(service, verdict) if isinstance(verdict, Refused) else verdict


def token_in(headers: dict[bytes, bytes]) -> str | None:
    """Return the token that a request carries, or None."""
    authorization = headers.get(b"authorization")
    return None if authorization is None else token_of(authorization.decode("latin-1"))


def refusal(service: Service, refused: Refused) -> Answer:
    """Return the answer to a request that is not let in."""
    headers = headers_of_refusal(service, refused)
    code = "unauthorized" if refused.http_status == 401 else refused.reason.value
    return problem(refused.http_status, refused.message, code=code, next_step=refused.next_step, headers=headers)


def headers_of_refusal(service: Service, refused: Refused) -> dict[str, str]:
    """Count a request that is not let in, and return what its answer says on when to come again."""
    service.metrics.refused(refused.reason.value)
    if refused.retry_after_s is None:
        return {}
    return {"Retry-After": str(math.ceil(refused.retry_after_s) or 1)}


def _checked(validate: Callable[[Any], T], value: Any, place: str) -> T:
    try:
        return validate(value)
    except ValidationError as error:
        raise FlawedError(flaws_of(error, place), error.error_count()) from None


async def read_body(receive: Receive, headers: dict[bytes, bytes], most_bytes: int, deadline_s: float) -> bytes:
    """Return the whole body of a request.

    Raises:
        NotJsonError: its content type is another one. A web page can make a browser send other types to any address
            without asking; JSON it cannot.
        BodyTooLargeError: it has more than `most_bytes`.
        BodyTooSlowError: it was not there after `deadline_s`.
        HungUp: the client is gone.
    """
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not media_type.endswith(b"+json"):
        raise NotJsonError(f"the body must be JSON (Content-Type: {media_type.decode('latin-1')[:60]!r})")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > most_bytes:
        raise BodyTooLargeError(f"the body must be at most {most_bytes} bytes (got {int(announced)})")
    try:
        async with asyncio.timeout(deadline_s):
            return await _collected(receive, most_bytes)
    except TimeoutError:
        raise BodyTooSlowError(f"the body did not arrive within {deadline_s:g} s") from None


async def _collected(receive: Receive, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        part = message.get("body", b"")
        size += len(part)
        if size > most_bytes:
            raise BodyTooLargeError(f"the body must be at most {most_bytes} bytes (got more)")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
