"""The server as an ASGI application: the table of its routes, and their OpenAPI description by FastAPI."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from http import HTTPStatus
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Header, Path, Query, Security
from fastapi.exception_handlers import http_exception_handler
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBasic, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.routing import Route as MountedRoute

import headgate
from headgate.core.errors import HeadgateError
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.server import legacy, v1_claims, v1_jobs, v1_servers
from headgate.jobqueue.server.answers import Answer, headers_of, ok, problem
from headgate.jobqueue.server.bodies import ORDINARY_BYTES
from headgate.jobqueue.server.documents import HealthOut
from headgate.jobqueue.server.endpoint import Endpoint
from headgate.jobqueue.server.legacy import is_legacy_path
from headgate.jobqueue.server.metrics import queue_gauges
from headgate.jobqueue.server.route import MOST_KEY_CHARS, REPLAYED, Call, Route
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.wire import ProblemOut
from headgate.net.hosts import console_hint
from headgate.net.refusals import PROBLEM_TYPE
from headgate.net.tokens import Scope

_HEALTH_S: Final = 5.0
"""A writer that has not answered after this counts as failing, whatever it is doing."""

_FAILING_S: Final = 60.0
"""A database that failed counts as failing until a write succeeds, but at most this long after its last failure."""


async def health(call: Call) -> Answer[HealthOut]:
    """Report whether the server works: the writer answers, and its last transaction succeeded."""
    service = call.service
    uptime_s = round(service.clock.monotonic() - service.started_at, 1)
    try:
        async with asyncio.timeout(_HEALTH_S):
            jobs = await call.look(lambda ledger, _: ledger.totals())
        if service.clock.monotonic() - service.writer.failed_at < _FAILING_S:
            raise StoreFailedError("the last transaction failed")  # noqa: TRY301 - handled like one that fails now
    except (TimeoutError, StoreFailedError):
        failing = HealthOut(status="failing", database="failing", uptime_s=uptime_s, jobs={})
        return Answer(to_json(failing), 503, media_type="application/json")
    return ok(HealthOut(status="healthy", database="open", uptime_s=uptime_s, jobs=jobs))


async def metrics(call: Call) -> Answer[bytes]:
    """Return metrics for Prometheus."""
    now = await call.look(lambda ledger, _: queue_gauges(ledger))
    text = call.service.metrics.text(now, len(call.service.long_polls))
    return Answer(text, media_type=CONTENT_TYPE_LATEST)


async def openapi(call: Call) -> Answer[bytes]:
    """Return the description of all routes."""
    return Answer(to_json(call.request.app.openapi()))


async def start(call: Call) -> Answer[bytes]:
    """Tell people how to watch the queue."""
    text = console_hint("job queue", "jobqueue", str(call.request.base_url))
    return Answer(text, media_type="text/plain")


_NAMES: Final = 4 * 1024**2
"""Enough for 10 000 leases or ids with the longest names."""

_BATCH: Final = 1024**3
"""The most that settings can allow: for jobs, servers and results only the settings are the bound."""

_LEASE: Final = {"lease_id": "0f" * 16, "epoch": 1}
_SERVER: Final = {"pool": "team_a", "host": "server1.example.com", "port": 8080, "not_compatible_task": ["task_c"]}

ROUTES: Final = (
    Route(
        "POST", "/v1/jobs", v1_jobs.submit, Scope.SUBMIT, "Submit jobs, all or none",
        most_bytes=_BATCH, errors=(409,),
        example={"jobs": [{"id": "17", "team": "team_a", "task": "turning_on_radio", "pool": "team_a"}]},
    ),
    Route("GET", "/v1/jobs", v1_jobs.list_jobs, Scope.READ, "List jobs"),
    Route("GET", "/v1/jobs/{job_id}", v1_jobs.show, Scope.READ, "Show a job", errors=(404,)),
    Route(
        "GET", "/v1/jobs/{job_id}/history", v1_jobs.job_history, Scope.READ, "Show what happened to a job",
        errors=(404,),
    ),
    Route(
        "POST", "/v1/claims", v1_claims.claim, Scope.CLAIM, "Claim jobs, waiting for them with `wait_s`",
        tag="claims", example={"worker": "alice-4711", "count": 1, "wait_s": 30, "lease_s": 90},
    ),
    Route(
        "POST", "/v1/leases/renew", v1_claims.renew, Scope.CLAIM, "Renew claims",
        most_bytes=_NAMES, tag="claims", example={"leases": [{"job_id": "17", **_LEASE}]},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/complete", v1_claims.complete, Scope.COMPLETE, "Hand in a result",
        most_bytes=ORDINARY_BYTES, errors=(404, 409), tag="claims",
        example={**_LEASE, "result": {"q_score": 0.75}},
    ),
    Route(
        "POST", "/v1/completions", v1_claims.complete_many, Scope.COMPLETE, "Hand in many results",
        most_bytes=_BATCH, tag="claims",
        example={"completions": [{"job_id": "17", **_LEASE, "result": {"q_score": 0.75}}]},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/fail", v1_claims.fail, Scope.COMPLETE, "Report that an attempt failed",
        most_bytes=ORDINARY_BYTES, errors=(404, 409), tag="claims",
        example={**_LEASE, "error": "the simulator crashed", "retry": True},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/give-back", v1_claims.give_back, Scope.CLAIM, "Give a job back uncharged",
        errors=(404, 409), tag="claims", example={**_LEASE, "reason": "preempted"},
    ),
    Route(
        "POST", "/v1/reservations", v1_servers.reserve, Scope.CLAIM, "Reserve a policy server for a claimed job",
        errors=(404, 409), tag="servers", example={"job_id": "17", **_LEASE, "wait_s": 60},
    ),
    Route(
        "POST", "/v1/reservations/release", v1_servers.release, Scope.CLAIM, "Release a policy server",
        errors=(409,), tag="servers", example={"resource_id": "team_a/0", **_LEASE},
    ),
    Route("GET", "/v1/dead-jobs", v1_jobs.list_dead, Scope.READ, "List dead jobs"),
    Route(
        "POST", "/v1/dead-jobs/requeue", v1_jobs.requeue, Scope.SUBMIT, "Make dead jobs pending again",
        most_bytes=_NAMES, errors=(404, 409), example={"job_ids": ["17"]},
    ),
    Route(
        "POST", "/v1/jobs/withdraw", v1_jobs.withdraw_many, Scope.SUBMIT, "Make jobs dead",
        most_bytes=_NAMES, errors=(404, 409), example={"job_ids": ["17"], "reason": "the team has withdrawn"},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/withdraw", v1_jobs.withdraw, Scope.SUBMIT, "Make a job dead",
        errors=(404, 409), example={"reason": "the team has withdrawn"},
    ),
    Route("GET", "/v1/results", v1_jobs.results, Scope.READ, "Collect completed jobs"),
    Route("GET", "/v1/history", v1_jobs.history, Scope.READ, "Show what happened"),
    Route("GET", "/v1/statistics", v1_servers.statistics, Scope.READ, "Count jobs and servers"),
    Route("GET", "/v1/resources", v1_servers.list_resources, Scope.READ, "List policy servers", tag="servers"),
    Route(
        "POST", "/v1/resources", v1_servers.register, Scope.ADMIN, "Register policy servers",
        most_bytes=_BATCH, is_of_all_teams=True, tag="servers", example={"resources": [_SERVER]},
    ),
    Route(
        "POST", "/v1/resources/{pool:path}/{index}/drain", v1_servers.drain, Scope.ADMIN, "Stop assigning a server",
        is_of_all_teams=True, errors=(404,), tag="servers", example={"reason": "maintenance"},
    ),
    Route(
        "POST", "/v1/resources/{pool:path}/{index}/open", v1_servers.open_, Scope.ADMIN, "Assign a server again",
        is_of_all_teams=True, errors=(404,), tag="servers", example={"reason": ""},
    ),
    Route(
        "DELETE", "/v1/resources/{pool:path}/{index}", v1_servers.remove, Scope.ADMIN, "Remove a server",
        is_of_all_teams=True, errors=(404, 409), tag="servers",
    ),
    Route("GET", "/", start, None, "Say how to watch the queue", media_type="text/plain", tag="server"),
    Route("GET", "/health", health, None, "Report the server's health", errors=(503,), tag="server"),
    Route(
        "GET", "/metrics", metrics, Scope.READ, "Metrics for Prometheus",
        is_of_all_teams=True, media_type="text/plain", tag="server",
    ),
    Route("GET", "/openapi.json", openapi, Scope.READ, "This description", tag="server"),
)  # fmt: skip
"""Every route but those of the legacy protocol; documentation, authorisation and metrics are derived from it."""


_SCHEMAS: Final = "#/components/schemas/"
_ALWAYS: Final = (401, 403, 421, 429, 500, 503)
_OF_BODIES: Final = (408, 413, 415)
_PLACES: Final = {"path": Path(), "query": Query(), "body": Body()}
_KEY: Final = Header(
    alias="Idempotency-Key", min_length=1, max_length=MOST_KEY_CHARS, pattern="^[!-~]([ -~]*[!-~])?$",
    description="A repeat of the request with the same key gets the same answer, and nothing is done twice.",
)  # fmt: skip
_TOKEN: Final = (
    Security(HTTPBearer(scheme_name="token", description="A token of `headgate jobqueue token create`.")),
    Security(HTTPBasic(scheme_name="password", description="The same token as password, with any user name.")),
)
_CLASSES: Final = {"application/json": JSONResponse, "text/plain": PlainTextResponse}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application's routes and of those in `ROUTES`."""
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
    """Return a function with the signature that FastAPI describes."""

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
        replayed = "`true` if this answer was already given to the same Idempotency-Key."
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
    """Return the application with `ROUTES` and, if enabled, the routes of the legacy protocol."""
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
    """Answer requests that no route takes, and those that a legacy route refuses."""
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
    """Answer errors of routes of the legacy protocol; the others answer their own."""
    if isinstance(error, HeadgateError):
        return JSONResponse({"detail": error.message}, error.http_status, headers_of(error))
    # Starlette raises the error again after this answer, and the server logs it with its traceback.
    return JSONResponse({"detail": "Internal Server Error"}, 500)


def _methods(request: Request) -> list[str]:
    """Return the methods that any route has for this path; the router only looks at the first route."""
    routes = [route for route in request.app.router.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})
