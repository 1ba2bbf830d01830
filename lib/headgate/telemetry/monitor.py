"""The monitoring API: a campaign's status, and steering it, over HTTP. Reading it changes nothing."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol

import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from headgate.core import Secret, checked_text, errors, events
from headgate.core import status as campaign_status
from headgate.core.events import CapacityPlan
from headgate.core.flaws import rule_in_words
from headgate.net.asgi import serving
from headgate.net.authority import EVERYBODY, Authority, Caller
from headgate.net.hosts import HostNames, advertised_name, check_site
from headgate.net.listener import bound, url_of
from headgate.net.refusals import PROBLEM_TYPE, check_binding, problem_document, token_of
from headgate.net.tokens import Scope
from headgate.telemetry import views
from headgate.telemetry.fields import json_safe
from headgate.telemetry.monitor_client import RUN_HEADER
from headgate.telemetry.views import status_document

LOCAL: Final = "local"
"""The operator recorded for a campaign that requires no token."""

_MONITOR_TOKEN: Final = Caller("", "monitor_token", frozenset({Scope.ADMIN}))
_MOST_OPERATOR: Final = 100

_OPEN: Final = "/health"
_ANOTHER: Final = "Look up in the journal where that run is asked; it may have ended."

_SAFE_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def problem(
    status: int, detail: str, *, code: str = "", next_step: str = "", errors: Sequence[dict[str, str]] = ()
) -> JSONResponse:
    """Return a response with a problem document, without empty fields."""
    document = problem_document(status, detail, code=code, next_step=next_step, errors=errors)
    return JSONResponse({name: said for name, said in document.items() if said}, status, media_type=PROBLEM_TYPE)


def problem_of(error: errors.HeadgateError) -> JSONResponse:
    """Return the problem document of one of Headgate's own errors."""
    response = problem(error.http_status, error.message, code=error.code, next_step=error.next_step)
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def answer_with_problems(app: FastAPI) -> None:
    """Make `app` answer every error with a problem document; unexpected errors are logged, not shown."""

    async def answered(_: Request, error: Exception) -> Response:
        match error:
            case errors.HeadgateError():
                return problem_of(error)
            case HTTPException():
                response = problem(error.status_code, str(error.detail))
                response.headers.update(error.headers or {})
                return response
            case RequestValidationError():
                # Omit the values: they may be a token in the wrong place.
                wrong = [
                    {"where": ".".join(str(part) for part in item["loc"]), "rule": rule_in_words(item)}
                    for item in error.errors()
                ]
                detail = "; ".join(f"{item['where']}: {item['rule']}" for item in wrong)
                return problem(422, detail, code=errors.InvalidInputError.code, errors=wrong)
        # Starlette re-raises the error after this answer, and the server logs it with its traceback.
        return problem(500, "the server failed to answer", code="internal", next_step="The server's log says why.")

    for kind in (errors.HeadgateError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answered)


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI layer in front of every path, known or not, except `/health`.

    With a token, or an `authority` for further tokens, it requires `Authorization: Bearer`: reading takes the scope
    `read`, everything else `steer`, and `token` has both. Without either it serves only requests whose Host header
    names this server. The caller is in the ASGI scope as `headgate.caller`. Since ports are reused, a request whose
    header `X-Headgate-Run` names another run than `run_id` is refused.
    """

    app: ASGIApp
    token: Secret | None
    authority: Authority | None
    names: HostNames
    run_id: str

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer the request of `scope`, or pass it on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
            await send(message)

        headers = Headers(scope=scope)
        try:
            check_site(headers.get, scope["method"])
            if scope["path"] != _OPEN:
                scope["headgate.caller"] = await self._caller(headers, scope["method"])
                if (wanted := headers.get(RUN_HEADER, self.run_id)) != self.run_id:
                    raise errors.MisdirectedError(f"another run answers here, not {wanted[:60]!r}", next_step=_ANOTHER)
        except errors.HeadgateError as error:
            await problem_of(error)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    async def _caller(self, headers: Headers, method: str) -> Caller:
        if self.token is None and self.authority is None:
            self.names.check(headers.get("host"))
            return EVERYBODY
        given = token_of(headers.get("authorization")) or ""
        if self.token is not None and compare_digest(given.encode(), self.token.reveal().encode()):
            return _MONITOR_TOKEN
        caller = await self.authority.identify(given, time.time()) if self.authority is not None else None
        if not isinstance(caller, Caller):
            raise errors.UnauthorizedError("the request carries no valid token")
        needed = Scope.READ if method in {"GET", "HEAD"} else Scope.STEER
        if not caller.has(needed) or caller.teams is not None:
            for_all = "" if caller.teams is None else " for all teams"
            raise errors.ForbiddenError(f"the token {caller.name} lacks the scope `{needed}`{for_all}")
        return caller


DEFAULT_PORT: Final = 8765

_MOST_CONNECTIONS: Final = 256
"""Maximum connections of users and collectors; the campaign needs file descriptors for itself."""

_STOP_S: Final = 2
"""How long a stop waits for responses in progress."""


@dataclass(frozen=True, slots=True)
class MonitorServer:
    """A listening monitoring API: its URL without a trailing slash, and its URL for other machines."""

    address: str
    advertised: str
    port: int


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries to a campaign besides its status. All are called on the event loop.

    Attributes:
        explain: returns which gate holds a task, and its model; raises NotFoundError for an unknown task.
        tasks: returns open tasks of a model and an environment (None: of all), up to a maximum.
        next_due: returns when a model's next task in an environment falls due, or why none does; None: unknown pair.
    """

    explain: Callable[[str], Awaitable[object]]
    tasks: Callable[[str | None, str | None, int], Sequence[object]]
    capacity: Callable[[], CapacityPlan]
    health: Callable[[], events.HealthReported]
    next_due: Callable[[str, str], object]


class Steered(Protocol):
    """Executes orders: a run's steering."""

    def document(self) -> dict[str, Any]:
        """Return the controls in force, the log of changes, and the latest revision."""

    async def steer(self, document: dict[str, Any], by: str, *, dry_run: bool) -> dict[str, Any]:
        """Execute an order on behalf of `by`, and return what was done; raises HeadgateError if it cannot be."""


class SteeringOrder(BaseModel):
    """The body of `POST /controls`."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    verb: str
    model: str | None = None
    environment: str | None = None
    what: str | None = None
    value: StrictBool | StrictInt | StrictFloat | None = None
    reason: str = ""
    dry_run: bool = False
    revision: int | None = None


def monitor_app(
    status: Callable[[], campaign_status.CampaignStatus],
    registry: CollectorRegistry,
    token: Secret | None = None,
    questions: Questions | None = None,
    steering: Steered | None = None,
    *,
    authority: Authority | None = None,
    host: str = "",
    run_id: str = "",
) -> ASGIApp:
    """Return the monitoring API as an ASGI application; `status` is called on its event loop, once per request.

    Without `token` and `authority`, it answers only to loopback names and `host`. A request for another run than
    `run_id` is refused.
    """
    # FastAPI's interactive pages load scripts from a CDN; the schema itself stays at /openapi.json.
    app = FastAPI(title="Headgate monitoring API", docs_url=None, redoc_url=None)
    answer_with_problems(app)
    _add_service_routes(app, registry)
    _add_status_routes(app, status, steering)
    _add_routes_of_earlier_clients(app, status)
    if questions is not None:
        _add_question_routes(app, questions)
    if steering is not None:
        _add_steering_routes(app, steering)
    return Guard(app, token or None, authority, HostNames(host), run_id)


@contextlib.asynccontextmanager
async def serve_monitor(
    status: Callable[[], campaign_status.CampaignStatus],
    registry: CollectorRegistry,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: Secret | None = None,
    questions: Questions | None = None,
    steering: Steered | None = None,
    *,
    authority: Authority | None = None,
    tls: ssl.SSLContext | None = None,
    run_id: str = "",
    advertised_host: str = "",
) -> AsyncIterator[MonitorServer]:
    """Serve the monitoring API in the running event loop for as long as the context is open.

    Port 0 takes a free one. Other machines call it by `advertised_host`, by default this machine's name if it listens
    on all addresses. The server installs no signal handlers; leaving the context finishes requests in progress and
    frees the port.

    Raises:
        InvalidSettingError: if `host` is not a loopback address and no token is set, or if the address cannot be bound.
    """
    check_binding(
        host,
        "the monitoring API",
        is_guarded=bool(token) or authority is not None,
        next_step="Listen on 127.0.0.1, or set a token that every request has to carry.",
    )
    app = monitor_app(status, registry, token, questions, steering, authority=authority, host=host, run_id=run_id)
    listener = bound(host, port)
    bound_host, bound_port = listener.getsockname()[:2]
    advertised_host = advertised_host or (advertised_name() if bound_host in {"0.0.0.0", "::"} else "")  # noqa: S104
    async with serving(app, listener, name="monitoring-api", most=_MOST_CONNECTIONS, stop_s=_STOP_S, tls=tls):
        yield MonitorServer(url_of(listener, tls), url_of(listener, tls, advertised_host), bound_port)


# All routes are coroutines, although they await nothing: a plain function would run in a thread, but the status belongs
# to the event loop. Each route's summary describes its answer; the index at / lists them.


def _add_service_routes(app: FastAPI, registry: CollectorRegistry) -> None:
    @app.get("/", include_in_schema=False)
    async def card() -> dict[str, Any]:
        listed = [route for route in app.routes if isinstance(route, APIRoute) and route.path != "/"]
        shown = {route.path.replace(":path", ""): route.summary for route in listed if not route.deprecated}
        return {"service": "headgate monitoring API", "endpoints": shown}

    @app.get("/health", summary="whether the server answers; needs no token")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    @app.get("/metrics", summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _add_status_routes(
    app: FastAPI, status: Callable[[], campaign_status.CampaignStatus], steering: Steered | None
) -> None:
    @app.get("/status", summary="the whole status; controls=true adds what `/controls` says")
    async def everything(controls: bool = False) -> Response:
        # Serialised directly: FastAPI takes four times as long for a document of 64 000 pairs, on the run's loop.
        # Clients that watch a campaign need both documents, and one response costs less.
        told = {"controls": json_safe(steering.document())} if controls and steering is not None else {}
        document = status_document(status()) | told
        return Response(orjson.dumps(document), media_type="application/json")

    @app.get("/status/summary", summary="the figures at a glance")
    async def summary() -> dict[str, Any]:
        return views.summary(status())

    filters = "status_filter=active|paused, min_samples_1h=N, has_errors=true|false"

    @app.get("/status/models", summary=f"every model; filters {filters}")
    async def models(chosen: Annotated[views.ModelFilter, Query()]) -> dict[str, Any]:
        return views.models(status(), chosen)

    @app.get("/status/models/{uid:path}", summary="one model, by uid or by NAME@REVISION")
    async def model(uid: str) -> dict[str, Any]:
        return views.model(status(), uid)

    @app.get("/status/queue", summary="the ready queue")
    async def queue() -> dict[str, Any]:
        return views.queue(status())

    @app.get("/status/workers", summary="the workers")
    async def workers() -> dict[str, Any]:
        return views.workers(status())

    @app.get("/status/requests", summary="the admission of requests: limits, in flight, waiters, cooldowns")
    async def requests() -> dict[str, Any]:
        return views.requests(status())

    @app.get("/status/env/{env_name:path}", summary="one environment")
    async def environment(env_name: str) -> dict[str, Any]:
        return views.environment(status(), env_name)


def _add_routes_of_earlier_clients(app: FastAPI, status: Callable[[], campaign_status.CampaignStatus]) -> None:
    @app.get("/status/miners", deprecated=True)
    async def miners(chosen: Annotated[views.ModelFilter, Query()]) -> dict[str, Any]:
        return views.as_miners(views.models(status(), chosen))

    @app.get("/status/miners/{uid:path}", deprecated=True)
    async def miner(uid: str) -> dict[str, Any]:
        return views.as_miners(views.model(status(), uid, "Miner"))


def _add_question_routes(app: FastAPI, questions: Questions) -> None:
    @app.get("/status/health", summary="counts at a glance, bounded in size: queue, leases, request keys")
    async def health() -> dict[str, Any]:
        return {"health": json_safe(questions.health())}

    @app.get("/status/capacity", summary="the capacity plan: configured, in force, most seen, each with its source")
    async def capacity() -> dict[str, Any]:
        return {"capacity": json_safe(questions.capacity())}

    @app.get("/status/tasks", summary="open tasks; model=NAME@REVISION, environment=NAME, limit=N")
    async def tasks(
        model: str | None = None, environment: str | None = None, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
    ) -> dict[str, Any]:
        found = questions.tasks(model, environment, limit)
        due = None if found or not (model and environment) else questions.next_due(model, environment)
        return {"tasks": json_safe(found), "next": json_safe(due)}

    @app.get("/status/tasks/{task_id:path}", summary="which gate holds a task, why, and until when")
    async def task(task_id: str) -> dict[str, Any]:
        return {"task": json_safe(await questions.explain(task_id))}


def _add_steering_routes(app: FastAPI, steering: Steered) -> None:
    @app.get("/controls", summary="what was paused and set, and the log of changes")
    async def controls() -> dict[str, Any]:
        document: dict[str, Any] = json_safe(steering.document())
        return document

    @app.post("/controls", summary="pause, resume, set, retry, drain, withdraw, undo")
    async def steer(order: SteeringOrder, request: Request) -> dict[str, Any]:
        by = _operator(request.scope["headgate.caller"], request.headers.get("x-headgate-operator"))
        fields = order.model_dump(exclude={"dry_run"}) | {"what": order.what or ""}
        return await steering.steer(fields, by, dry_run=order.dry_run)


def _operator(caller: Caller, told: str | None) -> str:
    """Return who steers: the token's name, or `local` without one, preceded by the person that a service names."""
    name = LOCAL if caller is EVERYBODY else caller.name
    try:
        operator = checked_text((told or "").strip()[:_MOST_OPERATOR])
    except ValueError as error:
        raise errors.InvalidInputError(f"X-Headgate-Operator {error}") from None
    return name if operator in {"", name} else f"{operator} (via {name})"
