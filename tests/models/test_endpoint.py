"""The endpoint as any HTTP client sees it, the official OpenAI SDK among them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from headgate.core import errors
from headgate.environments import Environment
from headgate.environments.judge_questions import judge_question
from headgate.models import FaultPlan, SimulationPlan, serve
from tests.models.doubles import EchoEnvironment

QUICK = SimulationPlan(mean_s=0.0, cv=0.0)
TASK = {"X-Headgate-Task": "test:echo/4/77/14"}
ASK = [{"role": "user", "content": "hello there"}]


def find(name: str) -> Environment:
    if name == "test:echo":
        return EchoEnvironment()
    if name == "test:broken":
        raise errors.EnvironmentFailedError("the environment 'test:broken' fell over")
    raise errors.UnknownEnvironmentError(f"environment {name!r} is not registered")


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serve(simulation=QUICK, find_environment=find) as endpoint,
        aiohttp.ClientSession(endpoint.url) as session,
    ):
        yield session


async def chat(
    http: aiohttp.ClientSession, model: str, headers: dict[str, str] | None = None, **fields: object
) -> dict:
    body = {"model": model, "messages": ASK} | fields
    async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
        return {"status": response.status} | await response.json()


def text_of(answer: dict) -> str:
    return answer["choices"][0]["message"]["content"]


async def test_health_is_ok(http: aiohttp.ClientSession) -> None:
    async with http.get("/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


async def test_the_listing_says_that_a_baseline_is_a_baseline(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/models") as response:
        listed = {model["id"]: model["owned_by"] for model in (await response.json())["data"]}
    assert set(listed) == {"baseline-random", "baseline-greedy", "baseline-solver", "baseline-judge", "simulated"}
    assert all("not a language model" in owner for owner in listed.values())


@pytest.mark.parametrize("kind", ["random", "greedy", "solver"])
async def test_a_baseline_answers_for_the_task_in_the_header(http: aiohttp.ClientSession, kind: str) -> None:
    answer = await chat(http, f"baseline-{kind}", TASK)
    assert text_of(answer).startswith(f"{kind} index=4 seed=77 turn=1 ")
    assert "not a language model" in answer["system_fingerprint"]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}


async def test_a_baseline_under_a_longer_name_is_the_same_baseline(http: aiohttp.ClientSession) -> None:
    assert text_of(await chat(http, "baseline-greedy-2", TASK)) == text_of(await chat(http, "baseline-greedy", TASK))


async def test_the_same_task_and_turn_are_answered_alike_and_the_next_turn_anew(http: aiohttp.ClientSession) -> None:
    first, again = [text_of(await chat(http, "baseline-random", TASK)) for _ in range(2)]
    longer = text_of(await chat(http, "baseline-random", TASK, messages=ASK * 3))
    assert first == again
    assert "turn=3" in longer
    assert longer.split("draw=")[1] != first.split("draw=")[1]


async def test_a_baseline_without_a_task_says_what_it_is_and_needs(http: aiohttp.ClientSession) -> None:
    text = text_of(await chat(http, "baseline-solver"))
    assert "not a language model" in text
    assert "X-Headgate-Task" in text


@pytest.mark.parametrize(
    ("model", "headers", "fields", "status", "said"),
    [
        ("gpt-9", {}, {}, 404, "gpt-9"),
        ("baseline-random", {"X-Headgate-Task": "nonsense"}, {}, 400, "environment/index/seed/sequence"),
        ("baseline-random", {"X-Headgate-Task": "test:echo/-1/2/3"}, {}, 400, "environment/index/seed/sequence"),
        ("baseline-random", {"X-Headgate-Task": "test:other/1/2/3"}, {}, 404, "test:other"),
        ("baseline-random", {"X-Headgate-Task": "test:broken/1/2/3"}, {}, 500, "fell over"),
        ("simulated", {}, {"messages": []}, 400, "at least one message"),
        ("simulated", {}, {"messages": [{"role": "oracle", "content": "x"}]}, 400, "role"),
        ("simulated", {}, {"messages": [{"role": "user", "content": 3}]}, 400, "text"),
        (7, {}, {}, 400, "model"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_told_why(
    http: aiohttp.ClientSession, model: str, headers: dict[str, str], fields: dict[str, object], status: int, said: str
) -> None:
    answer = await chat(http, model, headers, **fields)
    assert answer["status"] == status
    assert said in answer["error"]["message"]


async def test_a_body_that_is_not_json_is_a_bad_request(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/chat/completions", data=b"\xff{") as response:
        assert response.status == 400


async def test_the_openai_sdk_reads_our_answers_streams_and_errors() -> None:
    """The SDK is a client that none of us wrote; the one of Headgate is tested elsewhere."""

    import openai

    plan = FaultPlan.parse("error:model=simulated-limited,status=429,retry_after_s=1")
    async with (
        serve(plan, simulation=QUICK) as endpoint,
        openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="any", max_retries=0) as client,
    ):
        whole = await client.chat.completions.create(model="simulated", messages=ASK)
        stream = await client.chat.completions.create(
            model="simulated", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        names = [model.id async for model in client.models.list()]
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="simulated-limited", messages=ASK)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == QUICK.reply
    assert chunks[-1].usage == whole.usage
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert "simulated" in names
    assert caught.value.response.headers["retry-after"] == "1"


async def test_a_client_that_goes_away_frees_its_slot() -> None:
    plan = SimulationPlan(cap=1, mean_s=60.0, cv=0)
    async with serve(simulation=plan) as endpoint, aiohttp.ClientSession(endpoint.url) as http:
        leaving = asyncio.create_task(chat(http, "simulated"))
        await until(http, in_flight=1)
        leaving.cancel()
        after = await until(http, in_flight=0)
    assert after["by_status"] == {"499": 1}


async def until(http: aiohttp.ClientSession, in_flight: int) -> dict:
    """Return the figures once so many requests are in flight; the server is asked, since it tells nobody by itself."""
    while (counted := await stats(http))["in_flight"] != in_flight:  # noqa: ASYNC110 - the state is the server's
        await asyncio.sleep(0.01)
    return counted


async def stats(http: aiohttp.ClientSession, *, reset: bool = False) -> dict:
    call = http.post("/_headgate/stats/reset") if reset else http.get("/_headgate/stats")
    async with call as response:
        return await response.json()


async def test_the_simulated_provider_refuses_beyond_its_cap_over_all_models_and_counts_exactly() -> None:
    plan = SimulationPlan(cap=3, mean_s=0.2, cv=0, retry_after_s=0.25)
    async with serve(simulation=plan) as endpoint, aiohttp.ClientSession(endpoint.url) as http:
        answers = await asyncio.gather(*(chat(http, f"simulated-{i}") for i in range(5)))
        counted = await stats(http, reset=True)
        anew = await stats(http)
    assert sorted(answer["status"] for answer in answers) == [200, 200, 200, 429, 429]
    assert (counted["cap"], counted["peak"], counted["in_flight"]) == (3, 3, 0)
    assert counted["by_status"] == {"200": 3, "429": 2}
    assert 0.6 <= counted["busy_slot_s"] <= 0.6 + 3 * 0.2
    assert counted["utilisation"] == pytest.approx(counted["busy_slot_s"] / (3 * counted["elapsed_s"]))
    assert (anew["by_status"], anew["peak"], anew["busy_slot_s"]) == ({}, 0, 0.0)


async def test_an_endpoint_without_a_simulation_has_neither_its_model_nor_its_figures() -> None:
    async with serve() as endpoint, aiohttp.ClientSession(endpoint.url) as http:
        assert (await chat(http, "simulated"))["status"] == 404
        async with http.get("/_headgate/stats") as response:
            assert response.status == 404


async def test_an_address_that_is_taken_is_refused_with_the_next_step() -> None:
    async with serve() as endpoint:
        port = int(endpoint.url.rsplit(":", 1)[1])
        with pytest.raises(errors.InvalidInputError) as caught:
            async with serve(port=port):
                raise AssertionError("unreachable")
    assert str(port) in str(caught.value)
    assert "another port" in str(caught.value)


async def test_an_endpoint_stops_though_requests_hang_in_it() -> None:
    async with aiohttp.ClientSession() as http:
        async with serve(FaultPlan.parse("hang"), simulation=QUICK) as endpoint:
            body = {"model": "simulated", "messages": ASK}
            hanging = asyncio.create_task(http.post(f"{endpoint.base_url}/chat/completions", json=body))
            await asyncio.sleep(0.05)
        with pytest.raises(aiohttp.ClientConnectionError):
            await hanging


async def test_the_judge_baseline_reads_the_request_and_says_what_it_is(
    http: aiohttp.ClientSession,
) -> None:
    question = judge_question("Why?", "Rain.", ['says "rain"', 'says "snow"'], "It was rain.", secret="s")
    messages = [{"role": message.role, "content": message.content} for message in question]
    answer = await chat(http, "baseline-judge-2", messages=messages)
    assert '"score": 0.5' in text_of(answer)
    assert "not a language model" in text_of(answer)
    assert "not a language model" in answer["system_fingerprint"]
    assert "not a language model" in text_of(await chat(http, "baseline-judge", messages=ASK))
