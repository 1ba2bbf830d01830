"""The server as an ASGI application, and its description by FastAPI, which is told the routes as functions."""

from __future__ import annotations

from functools import cache, partial
from http import HTTPStatus
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Header, Path, Query, Security
from fastapi.exception_handlers import http_exception_handler
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBasic, HTTPBearer
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
from headgate.jobqueue.server.idempotency import MOST_KEY_CHARS, REPLAYED
from headgate.jobqueue.server.legacy import is_legacy_path
from headgate.jobqueue.server.route import Route
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1 import ROUTES
from headgate.jobqueue.wire import ProblemOut
from headgate.net.refusals import PROBLEM_TYPE

_SCHEMAS: Final = "#/components/schemas/"
_ALWAYS: Final = (401, 403, 421, 429, 500, 503)
_OF_BODIES: Final = (408, 413, 415)
_PLACES: Final = {"path": Path(), "query": Query(), "body": Body()}
_KEY: Final = Header(
    alias="Idempotency-Key", min_length=1, max_length=MOST_KEY_CHARS, pattern="^[!-~]([ -~]*[!-~])?$",
    description="The same request with the same key is answered the same, and nothing is done twice.",
)  # fmt: skip
_TOKEN: Final = (
    Security(HTTPBearer(scheme_name="token", description="A token of `headgate jobqueue token create`.")),
    Security(HTTPBasic(scheme_name="password", description="The same token as password, with any user name.")),
)
_CLASSES: Final = {"application/json": JSONResponse, "text/html": HTMLResponse, "text/plain": PlainTextResponse}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application's routes and of those in `v1.ROUTES`."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"}, routes=[*app.routes, *map(_described, ROUTES)],
    )  # fmt: skip
    problem = ProblemOut.model_json_schema(ref_template=_SCHEMAS + "{model}", mode="serialization")
    document["components"]["schemas"] |= problem.pop("$defs") | {"ProblemOut": problem}
    return document


def _described(route: Route) -> APIRoute:
    text = (route.handler.__doc__ or "").partition("\n")[0]
    return APIRoute(
        route.pattern,
        _signed(route),
        methods=[route.method],
        tags=[route.tag],
        summary=route.summary,
        description=text if route.scope is None else f"{text} Scope: `{route.scope.value}`.",
        operation_id=f"{route.method.lower()}_{route.handler.__name__.rstrip('_')}",
        dependencies=_TOKEN if route.scope else (),
        response_model=route.answers,
        response_class=_CLASSES[route.media_type],
        responses=_responses(route),
        openapi_extra={"requestBody": {"content": {"application/json": {"example": route.example}}}}
        if route.example
        else None,
    )


def _signed(route: Route) -> Any:
    """Return a function that takes what FastAPI is to describe."""

    def endpoint() -> None: ...

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[model, _PLACES[name]])
        for name, model in route.takes.items()
    ]
    if route.method == "POST":
        parameters.append(Parameter("key", Parameter.KEYWORD_ONLY, annotation=Annotated[str, _KEY], default=""))
    endpoint.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return endpoint


def _responses(route: Route) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {200: {"description": "Done."}}
    if route.method == "POST":
        replayed = "`true` on an answer that was given before to the same Idempotency-Key."
        found[200]["headers"] = {REPLAYED: _header(replayed)}
    of_bodies = _OF_BODIES if "body" in route.takes else ()
    for status in sorted({*route.errors, 422, 500, *(() if route.scope is None else (*_ALWAYS, *of_bodies))}):
        found[status] = _error(status, route)
    return found


def _error(status: int, route: Route) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": {"$ref": f"{_SCHEMAS}ProblemOut"}}}
    if route.scope is None and status == 503 and route.answers is not None:
        content = {route.media_type: {"schema": {"$ref": _SCHEMAS + route.answers.__name__}}}
    response: dict[str, Any] = {"description": f"{HTTPStatus(status).phrase}.", "content": content}
    if status in {429, 503} and route.scope is not None:
        response["headers"] = {"Retry-After": _header("Seconds to wait.", type="integer", minimum=1)}
    if status == 401:
        response["headers"] = {"WWW-Authenticate": _header("How to sign in.")}
    return response


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema or {"type": "string"}}


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
