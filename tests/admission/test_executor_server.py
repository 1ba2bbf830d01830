"""The executor against real servers that misbehave: both forms learn, wait and end alike, and nothing is left held."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate

import httpx
import pytest

from headgate.admission import CallWatch
from headgate.core import ChatError, ChatReply, ErrorKind, Model
from headgate.models import ChatClient, ClientSettings, FaultPlan, SimulationPlan, serve
from tests.admission.executor_world import FORMS, ExecutorWorld, Form
from tests.models.doubles import HELLO
from tests.models.raw_server import completion, raw_server, read_request, response

FINE = response(completion("at last"))
DOWN = response(b"{}", "503 Service Unavailable")


def busy(header: str = "") -> bytes:
    return response(b"{}", "429 Too Many Requests", header)


def in_turn(*answers: bytes) -> Callable[..., Awaitable[None]]:
    """Answer the requests, over all connections, with one of `answers` after the other, the last one for ever."""
    left = list(answers)

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            await read_request(reader)

    return script


def asking(url: str, **settings: float) -> Callable[[], Awaitable[ChatReply]]:
    """Return an attempt of our own client, which can run on any loop."""

    async def attempt() -> ChatReply:
        async with ChatClient(ClientSettings(**settings)) as client:  # type: ignore[arg-type]
            return await client.chat(Model("simulated", base_url=url), HELLO)

    return attempt


@asynccontextmanager
async def faulty(plan: str) -> AsyncIterator[str]:
    async with serve(FaultPlan.parse(plan), simulation=SimulationPlan(mean_s=0)) as endpoint:
        yield endpoint.base_url


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("header", "least_s", "most_s"),
    [
        ("Retry-After: 3\r\n", 3.0, 3.3),
        ("Retry-After: 0\r\n", 0.5, 1.0),
        ("Retry-After: soon\r\n", 0.5, 1.0),
        ("Retry-After: -5\r\n", 0.5, 1.0),
        ("", 0.5, 1.0),
        ("retry-after-ms: 1500\r\n", 1.5, 1.65),
        (f"Date: {formatdate(10_000, usegmt=True)}\r\nRetry-After: {formatdate(10_007, usegmt=True)}\r\n", 7.0, 7.7),
        (f"Date: {formatdate(10_000, usegmt=True)}\r\nRetry-After: {formatdate(9_000, usegmt=True)}\r\n", 0.5, 1.0),
    ],
)
async def test_a_429_is_sent_again_after_what_it_asks_for(
    form: Form, header: str, least_s: float, most_s: float
) -> None:
    world, watch = ExecutorWorld(), CallWatch()
    async with raw_server(in_turn(busy(header), FINE)) as url:
        reply = await world.call(form, asking(url), watch)
    assert reply.text == "at last"
    assert world.kinds == ["rate_limited", "success"]
    assert least_s <= world.slept[0] <= most_s
    assert len(world.slept) == 1
    assert (watch.attempts, watch.wait_s) == (2, pytest.approx(world.slept[0]))
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_a_provider_that_asks_for_a_billion_seconds_is_not_waited_for(form: Form) -> None:
    world = ExecutorWorld()
    async with raw_server(in_turn(busy("Retry-After: 1000000000\r\n"))) as url:
        with pytest.raises(ChatError) as caught:
            await world.call(form, asking(url))
    assert (caught.value.kind, world.slept) == (ErrorKind.RATE_LIMITED, [])
    assert [(o.kind.value, o.retry_after_s) for o in world.learnt] == [("rate_limited", 3600.0)]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_a_provider_that_refuses_again_and_again_is_asked_until_it_answers(form: Form) -> None:
    world = ExecutorWorld()
    async with raw_server(in_turn(*[busy()] * 12, FINE)) as url:
        reply = await world.call(form, asking(url))
    assert reply.text == "at last"
    assert world.kinds == ["rate_limited"] * 12 + ["success"]
    assert max(world.slept) <= 30
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("plan", "kind", "learnt", "attempts"),
    [
        ("error:status=503", ErrorKind.PROVIDER_FAILURE, "provider_failure", 4),
        ("error:status=529", ErrorKind.PROVIDER_FAILURE, "provider_failure", 4),
        ("error:status=408", ErrorKind.PROVIDER_TIMEOUT, "provider_timeout", 4),
        ("error:status=400", ErrorKind.BAD_REQUEST, "provider_failure", 1),
        ("key:key=another", ErrorKind.AUTH, "provider_failure", 1),
        ("cut:share=0.5", ErrorKind.PROVIDER_FAILURE, "provider_failure", 4),
        ("cut:share=0.5,ending=clean", ErrorKind.PROVIDER_FAILURE, "provider_failure", 4),
        ("garbage:form=not_json", ErrorKind.PROVIDER_FAILURE, "provider_failure", 4),
        ("hang", ErrorKind.PROVIDER_TIMEOUT, "provider_timeout", 4),
    ],
)
async def test_every_failure_has_its_outcome_and_its_number_of_attempts(
    form: Form, plan: str, kind: ErrorKind, learnt: str, attempts: int
) -> None:
    world, watch = ExecutorWorld(), CallWatch()
    async with faulty(plan) as url:
        with pytest.raises(ChatError) as caught:
            await world.call(form, asking(url, deadline_s=0.3 if plan == "hang" else 20.0), watch)
    assert caught.value.kind is kind
    assert world.kinds == [learnt] * attempts
    assert (watch.attempts, len(world.slept)) == (attempts, attempts - 1)
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_an_endpoint_that_refuses_connections_is_tried_again(form: Form) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    world = ExecutorWorld()
    with pytest.raises(ChatError) as caught:
        await world.call(form, asking(url))
    assert caught.value.kind is ErrorKind.CONNECTION
    assert world.kinds == ["provider_failure"] * 4
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_a_slow_answer_is_a_success_with_its_latency(form: Form) -> None:
    world = ExecutorWorld()
    async with faulty("slow:mean_s=0.05,cv=0") as url:
        await world.call(form, asking(url))
    (outcome,) = world.learnt
    assert outcome.kind == "success"
    assert outcome.latency_s is not None
    assert outcome.latency_s >= 0.05
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_failures_of_a_quarter_of_the_requests_cost_attempts_and_no_answer(form: Form) -> None:
    world = ExecutorWorld()
    async with faulty("seed=3;error:probability=0.25,status=503") as url:
        replies = [await world.call(form, asking(url)) for _ in range(20)]
    assert len(replies) == 20
    assert world.kinds.count("success") == 20
    assert 0 < world.kinds.count("provider_failure") < 20
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_the_exceptions_of_httpx_are_judged_by_their_status_and_headers(form: Form) -> None:
    world = ExecutorWorld()

    async def attempt() -> str:
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{url}/chat/completions", json={})
            return answer.raise_for_status().text

    async with raw_server(in_turn(busy("Retry-After: 2\r\n"), DOWN, FINE)) as url:
        assert "at last" in await world.call(form, attempt)
    assert world.kinds == ["rate_limited", "provider_failure", "success"]
    assert world.learnt[0].retry_after_s == 2.0
    assert 2.0 <= world.slept[0] <= 2.2
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_the_exceptions_of_openai_are_judged_by_their_status_and_headers(form: Form) -> None:
    import openai

    world = ExecutorWorld()

    async def attempt() -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
            answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            return answer.choices[0].message.content

    async with raw_server(in_turn(busy("Retry-After: 2\r\n"), DOWN, FINE)) as url:
        assert await world.call(form, attempt) == "at last"
    assert world.kinds == ["rate_limited", "provider_failure", "success"]
    assert 2.0 <= world.slept[0] <= 2.2
    world.assert_nothing_is_held()
