"""HTTP to an engine: whose headers go where, what is passed on, and what is made of odd servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.core import Secret
from headgate.elastic.engines import Outgoing
from headgate.elastic.engines.http import EngineHttp
from headgate.elastic.errors import EngineError
from tests.elastic.engines.subjects import CHAT, PATIENT


class Odd:
    """A server that answers as a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.answer: Any = lambda: web.Response(text="{}")
        self.url = ""

    async def handle(self, http: web.Request) -> web.StreamResponse:
        self.asked.append(http)
        await http.read()
        answer = self.answer()
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    server = Odd()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        server.url = str(running.make_url("")).rstrip("/")
        yield server


@pytest.fixture
async def http(odd: Odd) -> AsyncIterator[EngineHttp]:
    found = EngineHttp(odd.url, PATIENT, api_key=Secret("engines-key"))
    yield found
    await found.close()


async def test_headers_go_along_but_for_the_client_s_own_account(odd: Odd, http: EngineHttp) -> None:
    theirs = {"Authorization": "Bearer clients-key", "Cookie": "a=b", "X-Trace": "t1", "Host": "elsewhere"}
    async with http.answer(Outgoing("r", CHAT, b"{}", theirs)):
        pass

    headers = odd.asked[0].headers
    assert headers["Authorization"] == "Bearer engines-key"
    assert headers["X-Trace"] == "t1"
    assert "Cookie" not in headers
    assert headers["Host"] != "elsewhere"


async def test_status_type_and_the_time_to_come_back_are_passed_on(odd: Odd, http: EngineHttp) -> None:
    odd.answer = lambda: web.Response(status=429, text="later", headers={"Retry-After": "7", "Set-Cookie": "a=b"})
    async with http.answer(Outgoing("r", CHAT, b"{}")) as answer:
        assert (answer.status, answer.content_type) == (429, "text/plain; charset=utf-8")
        assert answer.headers == {"Retry-After": "7"}


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_answer_from_elsewhere_is_an_error_and_not_asked_for_again(
    odd: Odd, http: EngineHttp, status: int
) -> None:
    odd.answer = lambda: web.Response(status=status, text="no engine here")
    with pytest.raises(EngineError, match=f"answered {status}: no engine here"):
        async with http.answer(Outgoing("r", CHAT, b"{}")):
            pass

    assert len(odd.asked) == 1


async def test_a_kept_connection_that_the_server_had_closed_is_replaced_unseen(odd: Odd, http: EngineHttp) -> None:
    async with http.answer(Outgoing("r", CHAT, b"{}")) as answer:
        assert [chunk async for chunk in answer.chunks] == [b"{}"]

    def close() -> web.Response:
        transport = odd.asked[-1].transport
        assert transport is not None
        odd.answer = lambda: web.Response(text='{"again":true}')
        transport.abort()
        return web.Response()

    odd.answer = close
    async with http.answer(Outgoing("r", CHAT, b"{}")) as answer:
        assert [chunk async for chunk in answer.chunks] == [b'{"again":true}']


async def test_a_redirect_is_not_followed(odd: Odd, http: EngineHttp) -> None:
    odd.answer = lambda: web.Response(status=307, headers={"Location": "http://elsewhere.invalid/"})

    assert (await http.get("/v1/models")).status == 307
    async with http.answer(Outgoing("r", CHAT, b"{}")) as answer:
        assert answer.status == 307


async def test_a_server_that_sends_without_end_is_read_up_to_a_limit(odd: Odd, http: EngineHttp) -> None:
    async def without_end() -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(odd.asked[-1])
        try:
            while True:
                await response.write(b"x" * 65_536)
        except ConnectionError:
            return response

    odd.answer = without_end
    reply = await http.get("/metrics")

    assert len(reply.body) == 4 * 1024 * 1024


async def test_messages_show_no_key(odd: Odd, http: EngineHttp) -> None:
    odd.answer = lambda: web.Response(status=500, text="the key engines-key is not yours")

    assert "engines-key" not in (await http.get("/server_info")).said()


async def test_a_refused_key_is_final(odd: Odd, http: EngineHttp) -> None:
    odd.answer = lambda: web.Response(status=403)
    with pytest.raises(EngineError, match="403") as refused:
        await http.get("/server_info")

    assert refused.value.is_final
    assert len(odd.asked) == 1
