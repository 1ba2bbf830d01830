"""The server as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as MountedRoute

import headgate
from headgate.core import Clock, SystemClock
from headgate.core.errors import HeadgateError
from headgate.jobqueue.port import Reader
from headgate.jobqueue.server import legacy
from headgate.jobqueue.server.answers import Answer, problem, problem_of
from headgate.jobqueue.server.endpoint import Endpoint
from headgate.jobqueue.server.legacy import is_legacy_path
from headgate.jobqueue.server.metrics import Metrics
from headgate.jobqueue.server.openapi import add_routes
from headgate.jobqueue.server.service import Listings, LongPolls, Service
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.server.v1 import ROUTES
from headgate.jobqueue.writer import LedgerWriter
from headgate.net.authority import Authority
from headgate.net.hosts import HostNames
from headgate.net.refusals import PROBLEM_TYPE

_log = logging.getLogger("headgate.jobqueue")

_ABOUT: Final = (
    "Hands out jobs to workers and policy servers to jobs. A 2xx means committed; every write of a worker carries "
    "its lease; every error under `/v1` is a problem document (RFC 9457)."
)


def new_service(
    writer: LedgerWriter,
    open_reader: Callable[[], Reader],
    authority: Authority,
    settings: ServerSettings | None = None,
    clock: Clock | None = None,
) -> Service:
    """Return what the routes work with.

    Args:
        writer: open; the caller closes it.
        open_reader: `Store.reader` of the same store.
        authority: the caller closes it.
        settings: defaults when None.
        clock: of this machine when None.
    """
    chosen = clock or SystemClock()
    by = settings or ServerSettings()
    return Service(
        writer, Listings(open_reader), authority, by, chosen, Metrics(writer), LongPolls(), chosen.monotonic(),
        names=HostNames(by.host),
    )  # fmt: skip


def build_app(service: Service) -> FastAPI:
    """Return the application with the routes of `v1.ROUTES` and, where they are wanted, of the legacy protocol."""
    # FastAPI's interactive pages load scripts from a CDN; the description itself is at /openapi.json.
    app = FastAPI(
        title="Headgate job queue", version=headgate.__version__, description=_ABOUT,
        docs_url=None, redoc_url=None, openapi_url=None,
    )  # fmt: skip
    service.description = lambda: _described(app)
    for route in ROUTES:
        app.router.routes.append(MountedRoute(route.pattern, Endpoint(route, service), methods=[route.method]))
    if service.settings.legacy_routes:
        app.include_router(legacy.router)
    _answer_errors(app)
    app.state.service = service
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes,
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )  # fmt: skip
        app.openapi_schema = add_routes(document, ROUTES)
    return app.openapi_schema


def _answer_errors(app: FastAPI) -> None:
    async def answered(request: Request, error: Exception) -> Response:
        is_legacy = is_legacy_path(request.url.path)
        match error:
            case RequestValidationError():
                return await request_validation_exception_handler(request, error)
            case HTTPException():
                return await http_exception_handler(request, error) if is_legacy else _http(app, request, error)
            case HeadgateError():
                refused = HTTPException(error.http_status, error.message)
                return await http_exception_handler(request, refused) if is_legacy else _response(problem_of(error))
            case _:
                # Starlette raises the error again after this answer, and the server logs it with its traceback.
                if is_legacy:
                    return await http_exception_handler(request, HTTPException(500, "Internal Server Error"))
                text = "the server failed to answer"
                return _response(problem(500, text, code="internal", next_step="The server's log says why."))

    for kind in (HTTPException, HeadgateError, RequestValidationError, Exception):
        app.add_exception_handler(kind, answered)


def _http(app: FastAPI, request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(app, request))
    code = _CODES.get(error.status_code, "http_error")
    return _response(problem(error.status_code, str(error.detail), code=code, next_step=_NEXT, headers=headers))


_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
_NEXT: Final = "GET /openapi.json describes every route."


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods that any route has for this path; the router looks at the first one alone."""
    found: set[str] = set()
    for route in app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), PROBLEM_TYPE)
