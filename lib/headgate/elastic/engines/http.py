"""HTTP to one engine: control calls with deadlines and retries, and answers that are passed on as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import orjson

from headgate.core import Secret
from headgate.elastic.engines.calls import (
    SHOWN_CHARS,
    Attempts,
    KeyRefusedError,
    Reply,
    RequestIds,
    UnansweredError,
    broken,
)
from headgate.elastic.engines.engine import EngineAnswer, Outgoing
from headgate.elastic.errors import EngineError
from headgate.elastic.settings import ElasticConfig
from headgate.models import Connections, Journey, read_up_to

_MAX_CONTROL_BYTES: Final = 4 * 1024 * 1024
"""Control answers of engines are far smaller; an address that is not an engine might send without end."""

_ELSEWHERE: Final = frozenset({502, 503, 504})
"""Not the engine's own or final answer: from a proxy in front of it (Relax 282), or while it is still starting."""

_PASSED_ON: Final = ("Retry-After", "retry-after-ms", "X-Request-Id")
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
    }
)
"""Headers that belong to the client's own connection and account, and are not passed to the engine."""


class EngineHttp:
    """The connections to one engine, or to one router. Owned by an adapter; closed with it.

    A call is retried after a short pause if it could not be delivered, was answered 502, 503 or 504, or was not
    answered in time; every other answer comes from the engine itself and is final.
    """

    def __init__(
        self,
        address: str,
        config: ElasticConfig,
        *,
        api_key: Secret | None = None,
        admin_key: Secret | None = None,
    ) -> None:
        self.address = address
        self._timeout_s = config.engine_timeout
        self._api_key = api_key or Secret("")
        self._admin_key = admin_key or self._api_key
        self._attempts = Attempts(config.engine_attempts)
        self._connections: Connections | None = None

    async def get(self, path: str, **options: Any) -> Reply:
        """Return the answer to a GET; the options are those of `call`."""
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: object = None, **options: Any) -> Reply:
        """Return the answer to a POST, sent with the admin key; the options are those of `call`."""
        return await self.call("POST", path, body, is_admin=True, **options)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        is_admin: bool = False,
        within_s: float | None = None,
        once_after: tuple[type[EngineError], ...] = (),
        takes: frozenset[int] = frozenset(),
    ) -> Reply:
        """Return the complete answer of a control route.

        Args:
            method: HTTP method.
            path: path with its query.
            body: sent as JSON.
            is_admin: whether to use the admin key.
            within_s: limit per attempt in seconds; `engine_timeout` by default.
            once_after: failures that are not retried.
            takes: statuses among 502, 503 and 504 that are returned like all others.

        Raises:
            EngineError: there was no answer after all attempts, or the key was refused.
        """
        deadline_s = within_s or self._timeout_s
        return await self._attempts.run(
            lambda: self._attempt(method, path, body, is_admin, deadline_s, takes), once_after=once_after
        )

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request once and yield its answer; leaving early closes the connection.

        Raises:
            EngineError: no answer began, or its status is 502, 503 or 504.
        """
        response = await self._send(request)
        try:
            if response.status in _ELSEWHERE:
                raise await self._refusal(response, request.path)
            yield EngineAnswer(
                status=response.status,
                content_type=response.headers.get("Content-Type", "application/octet-stream"),
                chunks=self._chunks(response, request.path),
                headers={name: response.headers[name] for name in _PASSED_ON if name in response.headers},
            )
        finally:
            response.close()  # does nothing after the last byte, when the connection is back in the connection pool

    async def close(self) -> None:
        """Close all connections; legal twice. The next call opens new ones."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.__aexit__(None, None, None)

    async def _open(self) -> Connections:
        if self._connections is None:
            connections = Connections(connect_s=self._timeout_s, use_environment_proxy=False)
            self._connections = await connections.__aenter__()  # opens sockets only later, and does not suspend here
        return self._connections

    async def _attempt(
        self, method: str, path: str, body: object, is_admin: bool, within_s: float, takes: frozenset[int]
    ) -> Reply:
        call = f"{method} {self.address}{path}"
        connections = await self._open()
        headers = self._key(self._admin_key if is_admin else self._api_key)
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(within_s),
                # Changes use a new connection: if a kept one had been closed meanwhile, it would be unknown whether
                # the call arrived.
                (connections.pooled if method == "GET" else connections.fresh).request(
                    method,
                    self.address + path,
                    data=None if body is None else orjson.dumps(body),
                    headers=headers,
                    allow_redirects=False,
                ) as response,
            ):
                reply = Reply(call, response.status, bytes(await read_up_to(response, _MAX_CONTROL_BYTES)))
        except aiohttp.ClientError as error:  # before TimeoutError, as a connect timeout is both
            failed = broken(call, error)
        except TimeoutError:
            failed = UnansweredError(f"{call} was not answered within {within_s:g} s")
        except OSError as error:
            failed = broken(call, error)
        else:
            if reply.status in {401, 403}:
                raise KeyRefusedError(f"{call} was answered {reply.status}: it does not accept this key", is_final=True)
            if reply.status in _ELSEWHERE - takes:
                raise reply.error()
            return reply
        raise failed  # outside `except`: the transport's exceptions carry request headers, and thus the key

    async def _send(self, request: Outgoing) -> aiohttp.ClientResponse:
        connections = await self._open()
        sent = {name: value for name, value in request.headers.items() if name.lower() not in _OURS}
        sent |= {"Content-Type": "application/json", "Accept-Encoding": "identity", **self._key(self._api_key)}
        url = self.address + request.path
        # A server may close a kept connection just as a request is sent on it: then try once on a fresh one.
        for session in (connections.pooled, connections.fresh):
            journey = Journey()
            try:
                return await session.post(
                    url, data=request.body, headers=sent, allow_redirects=False, trace_request_ctx=journey
                )
            except (aiohttp.ClientError, OSError) as error:
                failed = broken(f"POST {url}", error)
            if not journey.was_reused:
                break
        raise failed

    async def _refusal(self, response: aiohttp.ClientResponse, path: str) -> EngineError:
        said = b""
        with suppress(aiohttp.ClientError, OSError):  # the status alone suffices
            async with asyncio.timeout(self._timeout_s):
                said = bytes(await read_up_to(response, SHOWN_CHARS * 4))
        return Reply(f"POST {self.address}{path}", response.status, said).error()

    async def _chunks(self, response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
        try:
            async for data in response.content.iter_any():
                yield data
        except (aiohttp.ClientError, OSError) as error:
            failed = broken(f"POST {self.address}{path}", error, after="an answer that had begun")
        else:
            return
        raise failed

    def _key(self, key: Secret) -> dict[str, str]:
        return {"Authorization": f"Bearer {key.reveal()}"} if key else {}


class HttpEngine:
    """Common base of engines with an HTTP API; changes to the engine run one at a time. Owns its connections."""

    def __init__(self, http: EngineHttp, config: ElasticConfig, *, slots: int | None = None) -> None:
        self.name = http.address
        self._http = http
        self._config = config
        self._slots = slots
        self._ids = RequestIds()
        self._turn = asyncio.Lock()
        """Held during a change of the engine; a cancelled change may still be finishing."""

    async def close(self) -> None:
        """Close the connections; legal twice."""
        await self._http.close()
