"""The server as an ASGI application."""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.routing import Route as MountedRoute

import headgate
from headgate.core.errors import HeadgateError
from headgate.jobqueue.server import legacy
from headgate.jobqueue.server.answers import headers_of, problem
from headgate.jobqueue.server.endpoint import Endpoint
from headgate.jobqueue.server.legacy import is_legacy_path
from headgate.jobqueue.server.openapi import described
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1 import ROUTES

_ABOUT: Final = (
    "Hands out jobs to workers and policy servers to jobs. A 2xx means committed; every write of a worker carries "
    "its lease; every error under `/v1` is a problem document (RFC 9457)."
)


def build_app(service: Service) -> FastAPI:
    """Return the application with the routes of `v1.ROUTES` and, where they are wanted, of the legacy protocol."""
    # FastAPI's interactive pages load scripts from a CDN; the description itself is at /openapi.json.
    app = FastAPI(
        title="Headgate job queue", version=headgate.__version__, description=_ABOUT,
        docs_url=None, redoc_url=None, openapi_url=None,
    )  # fmt: skip
    app.openapi = cache(partial(described, app))  # type: ignore[method-assign]
    app.router.routes += [
        MountedRoute(route.pattern, Endpoint(route, service), methods=[route.method]) for route in ROUTES
    ]
    if service.settings.legacy_routes:
        app.include_router(legacy.router)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(HeadgateError, _failed)
    app.add_exception_handler(Exception, _failed)
    app.state.service = service
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what no route takes, and what one of the legacy protocol's refuses."""
    assert isinstance(error, HTTPException)
    if is_legacy_path(request.url.path):
        return await http_exception_handler(request, error)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    next_step = "GET /openapi.json describes every route."
    return problem(error.status_code, str(error.detail), code=code, next_step=next_step, headers=headers)


async def _failed(_: Request, error: Exception) -> Response:
    """Answer what went wrong in a route of the legacy protocol; the others answer for themselves."""
    if isinstance(error, HeadgateError):
        return JSONResponse({"detail": error.message}, error.http_status, headers_of(error))
    # Starlette raises the error again after this answer, and the server logs it with its traceback.
    return JSONResponse({"detail": "Internal Server Error"}, 500)


def _methods(request: Request) -> list[str]:
    """Return the methods that any route has for this path; the router looks at the first one alone."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)
