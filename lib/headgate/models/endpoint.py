"""The local endpoint: a real OpenAI-compatible HTTP server for the baselines and the simulated model, with faults."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from headgate.core import Clock, SystemClock, errors
from headgate.models.baselines import (
    SIMULATED,
    WITHOUT_TASK,
    BaselineAgents,
    Simulation,
    SimulationPlan,
    baseline_of,
    fingerprint,
    installed_environment,
    is_judge_baseline,
    judge_reply,
    listed_baselines,
)
from headgate.models.batch_routes import BatchRoutes, json_answer
from headgate.models.faults import Break, Cut, FaultPlan, FaultSchedule, Garbage, Hang, Refuse
from headgate.models.wire import (
    BadRequestError,
    ChatRequest,
    Completion,
    count_tokens,
    error_body,
    listing,
    read_request,
)
from headgate.net.aiohttp_server import read_body, serving
from headgate.net.hosts import HostNames, check_site
from headgate.net.listener import bound, url_of

if TYPE_CHECKING:
    from headgate.environments import Environment

_PIECE_BYTES: Final = 64 * 1024


async def send_broken(
    rule: Hang | Cut | Garbage, http: web.Request, request: ChatRequest, answer: Completion
) -> web.StreamResponse:
    """Return the response that `rule` makes of `answer`; a hanging one ends only when the client disconnects."""
    match rule:
        case Hang():
            await asyncio.Event().wait()
            raise AssertionError("unreachable: nobody sets the event")
        case Cut():
            return await _cut(rule, http, request, answer)
        case Garbage():
            return await _garbage(rule, http, request, answer)


async def _cut(rule: Cut, http: web.Request, request: ChatRequest, answer: Completion) -> web.StreamResponse:
    whole = b"".join(answer.chunks(with_usage=request.wants_usage)) if request.streams else answer.whole()
    sent = whole[: int(len(whole) * rule.share)]
    if request.streams:
        # Cut between two events, before the one with the finish reason, as when a router loses its engine.
        sent = sent[: max(sent.rfind(b"\n\n", 0, whole.rfind(b'"finish_reason":"')) + 2, 0)]
    response = _response(request)
    if not request.streams and rule.ending == "reset":
        response.content_length = len(whole)
    await response.prepare(http)
    await response.write(sent)
    if rule.ending == "reset" and http.transport is not None:
        http.transport.close()  # unlike abort(), it first sends what was written
    return response


async def _garbage(rule: Garbage, http: web.Request, request: ChatRequest, answer: Completion) -> web.StreamResponse:
    response = _response(request)
    await response.prepare(http)
    if request.streams:
        await response.write(b"data: ")
    for piece in _garbage_pieces(rule, answer):
        await response.write(piece)
    await response.write_eof(b"\n\n" if request.streams else b"")
    return response


def _garbage_pieces(rule: Garbage, answer: Completion) -> Iterator[bytes]:
    match rule.form:
        case "empty":
            return
        case "invalid_utf8":
            yield answer.whole().replace(b'"content":"', b'"content":"\xff\xfe\xc3\x28')
        case "not_json":
            yield b"<html><body>Bad gateway</body></html>"
        case "no_choices":
            yield b'{"object":"chat.completion","choices":[]}'
        case "huge":
            head, tail = answer.whole().split(b'"content":"', 1)
            yield head + b'"content":"'
            for left in range(rule.size_bytes, 0, -_PIECE_BYTES):
                yield b"a" * min(left, _PIECE_BYTES)
            yield tail


def _response(request: ChatRequest) -> web.StreamResponse:
    kind = "text/event-stream" if request.streams else "application/json"
    return web.StreamResponse(headers={"Content-Type": kind})


_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_MOST_CONNECTIONS: Final = 20_000
_CLIENT_GONE: Final = 499

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running endpoint.

    Attributes:
        url: its address without a path.
        base_url: the address for a roster, up to and including `/v1`.
    """

    url: str

    @property
    def base_url(self) -> str:
        """The address of its OpenAI-compatible API."""
        return f"{self.url}/v1"


@asynccontextmanager
async def serve(
    plan: FaultPlan | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    simulation: SimulationPlan | None = None,
    find_environment: Callable[[str], Environment] = installed_environment,
    clock: Clock | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Endpoint]:
    """Yield a running endpoint; it stops when the context ends.

    Args:
        plan: the faults; none if absent.
        host: address to listen on.
        port: 0 for any free one.
        simulation: serve the simulated model as well.
        find_environment: returns the environment of a name, for the baselines.
        clock: clock of the faults and of the simulation.
        tls: context to serve TLS with; plain HTTP if absent.

    Raises:
        InvalidSettingError: if the endpoint cannot listen on the address.
    """
    with BaselineAgents(find_environment) as agents:
        api = _Api(plan or FaultPlan(), simulation, agents, clock or SystemClock())
        listener = bound(host, port)
        app = api.application(HostNames(host))
        async with (
            api.batches.working(),
            serving(app, listener, most=_MOST_CONNECTIONS, stop_s=0.2, tls=tls),
        ):
            yield Endpoint(url_of(listener, tls, host))


class _Api:
    """The routes of one endpoint and their state."""

    def __init__(
        self, plan: FaultPlan, simulation: SimulationPlan | None, agents: BaselineAgents, clock: Clock
    ) -> None:
        self._clock = clock
        self._agents = agents
        self._faults = FaultSchedule(plan)
        self._simulation = Simulation(simulation, clock.monotonic()) if simulation else None
        self.batches = BatchRoutes(self._answered, _owner, clock)

    def application(self, names: HostNames) -> web.Application:
        @web.middleware
        async def for_programs(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                names.check(request.headers.get("Host"))
                check_site(request.headers.get, request.method)
            except errors.HeadgateError as error:
                return _failure(error.http_status, str(error))
            return await handler(request)

        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[for_programs])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self.batches.add_to(app)
        app.router.add_get("/health", self._health)
        app.router.add_get("/_headgate/stats", self._stats)
        app.router.add_post("/_headgate/stats/reset", self._reset)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return json_answer(b'{"status":"ok"}')

    async def _models(self, _: web.Request) -> web.Response:
        simulated = {SIMULATED: "a simulated provider, not a language model"} if self._simulation else {}
        return json_answer(listing(listed_baselines() | simulated))

    async def _stats(self, _: web.Request) -> web.Response:
        if self._simulation is None:
            return _failure(404, "no simulated model is served here")
        return json_answer(orjson.dumps(dataclasses.asdict(self._simulation.stats(self._clock.monotonic()))))

    async def _reset(self, request: web.Request) -> web.Response:
        answer = await self._stats(request)
        if self._simulation is not None:
            self._simulation.reset(self._clock.monotonic())
        return answer

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        try:
            request = read_request(await read_body(http), http.headers)
        except BadRequestError as error:
            return _failure(400, str(error))
        verdict = self._faults.begin(request.model, request.key, self._clock.monotonic())
        if isinstance(verdict, Refuse):
            await self._pause(verdict.after_s)
            return _failure(verdict.status, "a fault of the plan", verdict.retry_after_s)
        try:
            await self._pause(verdict.after_s)
            answer = await self._answer(request)
            if isinstance(answer, web.Response):
                return answer
            if isinstance(verdict, Break):
                return await send_broken(verdict.rule, http, request, answer)
            return await _send(http, request, answer)
        finally:
            self._faults.end(request.model)

    async def _answered(self, owner: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Answer a request of a batch."""
        try:
            request = dataclasses.replace(read_request(body, headers), key=owner)
        except BadRequestError as error:
            return 400, error_body(str(error), "headgate", 400)
        verdict = self._faults.begin(request.model, request.key, self._clock.monotonic())
        try:
            await self._pause(verdict.after_s)
            if isinstance(verdict, Refuse | Break):
                status = verdict.status if isinstance(verdict, Refuse) else 500
                return status, error_body("a fault of the plan", "headgate", status)
            answer = await self._answer(request)
        finally:
            if not isinstance(verdict, Refuse):
                self._faults.end(request.model)
        if isinstance(answer, Completion):
            return 200, answer.whole()
        assert isinstance(answer.body, bytes), "failures are whole"
        return answer.status, answer.body

    async def _answer(self, request: ChatRequest) -> Completion | web.Response:
        if is_judge_baseline(request.model):
            text = judge_reply(request.messages)
            return Completion(request.model, text, _prompt_tokens(request), fingerprint("judge"))
        if (kind := baseline_of(request.model)) is not None:
            try:
                text = await self._agents.reply(kind, request.task, request.messages) if request.task else WITHOUT_TASK
            except errors.HeadgateError as error:
                return _failure(error.http_status, str(error))
            return Completion(request.model, text, _prompt_tokens(request), fingerprint(kind), request.has_tools)
        if self._simulation is not None and (request.model == SIMULATED or request.model.startswith(SIMULATED + "-")):
            return await self._simulated(self._simulation, request)
        return _failure(404, f"no model {request.model[:100]!r} is served here; GET /v1/models lists them")

    async def _simulated(self, simulation: Simulation, request: ChatRequest) -> Completion | web.Response:
        service_s = simulation.enter(request.model, self._clock.monotonic())
        if service_s is None:
            await self._pause(simulation.plan.reject_s)
            return _failure(429, f"all {simulation.plan.cap} slots are busy", simulation.plan.retry_after_s)
        status = _CLIENT_GONE
        try:
            await self._clock.sleep(service_s)
            status = 200
        finally:
            simulation.leave(status, self._clock.monotonic())
        return Completion(request.model, simulation.plan.reply, _prompt_tokens(request), "headgate-simulated")

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._clock.sleep(seconds)


async def _owner(http: web.Request) -> str:
    """Return the owner of the files and batches that a request is about: a hash of the request's key."""
    return hashlib.sha256(http.headers.get("Authorization", "").encode("utf-8", "surrogateescape")).hexdigest()


async def _send(http: web.Request, request: ChatRequest, answer: Completion) -> web.StreamResponse:
    if not request.streams:
        return json_answer(answer.whole())
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(http)
    *chunks, last = answer.chunks(with_usage=request.wants_usage)
    for chunk in chunks:
        await response.write(chunk)
        await asyncio.sleep(0)  # each chunk arrives separately at the client, as from a model
    await response.write_eof(last)
    return response


def _prompt_tokens(request: ChatRequest) -> int:
    return sum(count_tokens(message.content) for message in request.messages)


def _failure(status: int, message: str, retry_after_s: float | None = None) -> web.Response:
    response = json_answer(error_body(message, "headgate", status), status)
    if retry_after_s is not None:
        # Retry-After takes whole seconds only; fractions go into the header that OpenAI's servers use for them.
        response.headers["Retry-After"] = str(max(0, -int(-retry_after_s // 1)))
        response.headers["retry-after-ms"] = str(round(retry_after_s * 1000))
    return response


def run_baselines(
    host: str = "127.0.0.1",
    port: int = 8001,
    plan: FaultPlan | None = None,
    *,
    find_environment: Callable[[str], Environment] = installed_environment,
    tls: ssl.SSLContext | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the baselines until SIGINT or SIGTERM; `announce` gets one line with the address once it listens.

    They play the environments that `find_environment` returns.

    Raises:
        InvalidInputError: if the endpoint cannot listen on the address.
    """

    async def main() -> None:
        async with serve(plan, host=host, port=port, find_environment=find_environment, tls=tls) as endpoint:
            announce(f"Baselines (not language models) answer at {endpoint.base_url}")
            await stop_signal()

    asyncio.run(main())


async def stop_signal() -> None:
    """Return at the first SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
