"""The gateway's HTTP server: the OpenAI-compatible API, the control API, health and metrics."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from http import HTTPStatus
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headgate.core import SystemClock
from headgate.core.errors import HeadgateError
from headgate.core.events import Emit, unheard
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway.access import Callers
from headgate.elastic.gateway.admission import PoolAdmission
from headgate.elastic.gateway.completions import Completions
from headgate.elastic.gateway.control import Control
from headgate.elastic.gateway.settings import GatewaySettings
from headgate.elastic.gateway.status import GatewayStatus
from headgate.elastic.gateway.wire import HttpFailure, json_answer, problem, refusal
from headgate.elastic.service import ElasticCollector, ElasticService
from headgate.elastic.settings import ElasticConfig
from headgate.models import BatchRoutes
from headgate.net.aiohttp_server import serving
from headgate.net.hosts import check_site, console_hint
from headgate.net.listener import bound, url_of
from headgate.net.tls import CERTIFICATE_VARIABLE, KEY_VARIABLE, server_context
from headgate.net.tokens import Scope
from headgate.telemetry import RequestCollector, new_registry

_log = logging.getLogger("headgate.elastic")

_MOST_CONNECTIONS: Final = 20_000

_CLOSE_S: Final = 0.5
"""How long watchers get to end when the gateway closes; requests were drained before."""


class Gateway:
    """A gateway in front of one pool. Made by `running_gateway`.

    Attributes:
        url: its address without a path.
    """

    def __init__(
        self,
        service: ElasticService,
        config: ElasticConfig,
        settings: GatewaySettings,
        callers: Callers,
        *,
        model: str | None = None,
        emit: Emit | None = None,
    ) -> None:
        self.url = ""
        self._service = service
        self._settings = settings
        self._callers = callers
        clock = SystemClock()
        self._admission = PoolAdmission(service, config, settings.weights, clock, emit or unheard)
        self._completions = Completions(
            service, self._admission, callers, model=model, max_body_bytes=settings.max_body_bytes, clock=clock
        )
        self.batches = BatchRoutes(self._completions.answered, self._owner, clock)
        self._control = Control(service, self.status, callers, clock)
        self._registry = new_registry()
        self._registry.register(ElasticCollector(lambda: [service.status()]))
        self._registry.register(RequestCollector(self._admission.requests))

    @property
    def base_url(self) -> str:
        """The address of its OpenAI-compatible API."""
        return f"{self.url}/v1"

    def status(self) -> GatewayStatus:
        """Return its status."""
        return GatewayStatus(self._service.status(), self._admission.view(), self._completions.is_draining)

    async def drain(self, drain_s: float | None = None) -> None:
        """Refuse new requests (503 with Retry-After), and end the pool once those in flight are answered.

        Args:
            drain_s: seconds that requests in flight get before they fail; None for the value of the settings.
        """
        self._completions.is_draining = True
        self._control.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s if drain_s is None else drain_s):
                await self._completions.is_empty.wait()
        self._admission.close("the gateway stops")
        await self._service.stop(0.0)

    def application(self) -> web.Application:
        """Return the routes; serve them with `handler_cancellation`."""
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=[_in_words])
        self._completions.add_to(app)
        self.batches.add_to(app)
        self._control.add_to(app)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/", self._start)
        return app

    async def follow(self) -> None:
        """Follow the capacity of the pool until cancelled."""
        await self._admission.follow()

    async def _owner(self, http: web.Request) -> str:
        return (await self._callers.caller(http.headers)).name

    async def _health(self, _: web.Request) -> web.Response:
        if self._completions.is_draining or not self._service.status().is_open:
            return json_answer(b'{"status":"stopping"}', 503)
        return json_answer(b'{"status":"ok"}')

    async def _metrics(self, http: web.Request) -> web.Response:
        await self._callers.caller(http.headers, Scope.READ)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _start(self, http: web.Request) -> web.Response:
        return web.Response(
            body=console_hint("elastic pool", "elastic", str(http.url.origin())), content_type="text/plain"
        )


@asynccontextmanager
async def running_gateway(
    service: ElasticService,
    config: ElasticConfig,
    settings: GatewaySettings | None = None,
    *,
    model: str | None = None,
    environ: Mapping[str, str] = os.environ,
    emit: Emit | None = None,
) -> AsyncIterator[Gateway]:
    """Yield a listening gateway in front of a pool that has been entered; it stops when the context ends.

    Args:
        service: the pool.
        config: settings of the pool.
        settings: how to listen, and whom to serve.
        model: the only model to serve; the pool's engines must have it.
        environ: environment variables with the tokens.
        emit: gets the events of admission.

    Raises:
        InvalidElasticError: the engines do not serve the model, or a token's variable is not set.
        InvalidSettingError: other machines could reach it, and it requires no token; or the address cannot be bound,
            or TLS cannot be set up.
    """
    chosen = settings or GatewaySettings()
    models = service.status().models
    if model and models and model not in models:
        raise InvalidElasticError(
            f"model must be one that the engines serve (got {model!r}; they serve {', '.join(models)})"
        )
    tls = server_context(
        chosen.tls_certificate or environ.get(CERTIFICATE_VARIABLE, ""), chosen.tls_key or environ.get(KEY_VARIABLE, "")
    )
    with closing(Callers.of(chosen, environ)) as callers:
        gateway = Gateway(service, config, chosen, callers, model=model, emit=emit)
        listener = bound(chosen.host, chosen.port)
        gateway.url = url_of(listener, tls, chosen.host)
        async with (
            gateway.batches.working(),
            serving(gateway.application(), listener, most=_MOST_CONNECTIONS, stop_s=_CLOSE_S, tls=tls),
        ):
            following = asyncio.create_task(gateway.follow(), name="elastic gateway follows its pool")
            try:
                yield gateway
            finally:
                following.cancel()
                await asyncio.wait([following])
                if not following.cancelled():
                    following.result()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into answers in the form of the API that was called."""
    try:
        check_site(request.headers.get, request.method)
        return await handler(request)
    except HeadgateError as error:
        refused: HeadgateError | HttpFailure = error
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        is_unknown = error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
        said = f"{request.method} {request.path} is not served here" if is_unknown else error.reason
        refused = HttpFailure(error.status, said)
    except Exception:  # noqa: BLE001 - the boundary of a request: logged, and the client gets a 500
        _log.exception("The gateway failed to answer %s %s", request.method, request.path)
        refused = HttpFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway failed to answer; its log says why")
    return refusal(refused) if request.path.startswith("/v1/") else problem(refused)
