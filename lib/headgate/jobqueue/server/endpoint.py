"""Serves one route: authenticates callers, reads and checks their requests, answers, and counts.

Routing, request and answer are Starlette's; FastAPI's dependencies are not involved, since they would take most of the
few hundred microseconds of a worker's claim or completion.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from headgate.core.errors import HeadgateError
from headgate.jobqueue.errors import BodyTooLargeError, BodyTooSlowError, NotJsonError
from headgate.jobqueue.server.access import check_scope
from headgate.jobqueue.server.answers import Answer, problem, problem_of, wait_headers
from headgate.jobqueue.server.bodies import ORDINARY_BYTES, SMALL_BYTES, checked
from headgate.jobqueue.server.route import Call, Route, key_of
from headgate.jobqueue.server.service import Service
from headgate.net.authority import Caller, Refused
from headgate.net.request_flaws import validated

_log = logging.getLogger("headgate.jobqueue")

_NO_TOKEN: Final = Caller(token_id="", name="", scopes=frozenset())
"""The caller of a route that needs no token."""


class Endpoint:
    """An ASGI application for one route."""

    def __init__(self, route: Route, service: Service) -> None:
        self.route = route
        self._service = service
        self._models = route.takes
        settings = service.settings
        is_ordinary = route.most_bytes <= ORDINARY_BYTES
        self._most_bytes = min(route.most_bytes, settings.body_bytes if is_ordinary else settings.batch_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of `scope`; a client that hung up gets no answer."""
        started = perf_counter()
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except HeadgateError as error:
            answer = problem_of(error)
        except Exception:  # noqa: BLE001 - the boundary of a request: reported, and answered without details
            _log.exception("%s failed", self.route.name)
            answer = problem(
                500, "the server failed to answer", code="internal", next_step="The server's log says why."
            )
        await answer(scope, receive, send)
        self._service.metrics.request(self.route.name, answer.status_code, perf_counter() - started)

    async def _answer(self, request: Request) -> Answer[Any]:
        service, route = self._service, self.route
        caller = _NO_TOKEN
        if route.scope is not None:
            verdict = await service.let_in(request, route.method)
            if isinstance(verdict, Refused):
                return _refusal(verdict)
            caller = verdict
            check_scope(caller, route.scope, is_of_all_teams=route.is_of_all_teams)
        with service.opened(caller):
            raw, given = b"", {}
            if "body" in self._models:
                raw, given["body"] = await self._body(request, caller)
            key = key_of(request, caller.token_id, raw)
            if "path" in self._models:
                given["path"] = validated(self._models["path"], request.path_params, "path")
            if "query" in self._models:
                given["query"] = validated(self._models["query"], _query(request), "query")
            return await route.handler(Call(service, caller, request, key), **given)

    async def _body(self, request: Request, caller: Caller) -> tuple[bytes, BaseModel]:
        """Return the body of a request, raw and as its model; a large one waits for its token's turn.

        Raises:
            NotJsonError: its content type is another one. A web page can make a browser send other types to any address
                without asking, but not JSON.
            BodyTooLargeError: it has more bytes than the route takes.
            BodyTooSlowError: it did not arrive in time.
        """
        service, model = self._service, self._models["body"]
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise NotJsonError(f"the body must be JSON (Content-Type: {media_type[:60]!r})")
        announced = request.headers.get("content-length", "")
        size = int(announced) if announced.isdecimal() else self._most_bytes
        if size > self._most_bytes:
            raise BodyTooLargeError(f"the body must be at most {self._most_bytes} bytes (got {size})")
        if size <= SMALL_BYTES:
            raw = await self._read(request)
            return raw, checked(model, raw)
        async with service.large_bodies.turn(caller.token_id, service.settings.body_deadline_s):
            raw = await self._read(request)
            return raw, await service.large_bodies.run(lambda: checked(model, raw))

    async def _read(self, request: Request) -> bytes:
        deadline_s = self._service.settings.body_deadline_s
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(deadline_s):
                async for part in request.stream():
                    size += len(part)
                    if size > self._most_bytes:
                        raise BodyTooLargeError(f"the body must be at most {self._most_bytes} bytes (got more)")
                    parts.append(part)
        except TimeoutError:
            raise BodyTooSlowError(f"the body did not arrive within {deadline_s:g} s") from None
        return b"".join(parts)


def _query(request: Request) -> dict[str, Any]:
    """Return the parameters of a query; repeated ones as lists."""
    query = request.query_params
    return {name: many if len(many := query.getlist(name)) > 1 else many[0] for name in query}


def _refusal(refused: Refused) -> Answer[Any]:
    code = "unauthorized" if refused.http_status == 401 else refused.reason.value
    headers = wait_headers(refused.retry_after_s)
    return problem(refused.http_status, refused.message, code=code, next_step=refused.next_step, headers=headers)
