"""The official client of OpenAI against both faces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from headgate.simulation.engines import Api, EnginePlan, FakeEngine, serve_engine

if TYPE_CHECKING:
    import openai

PROMPT = "one two three"


@pytest.fixture(params=["sglang", "vllm"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[FakeEngine]:
    api: Api = request.param
    async with serve_engine(EnginePlan(api=api, model="m", reply_tokens=4)) as running:
        yield running


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_a_chat_is_answered_with_the_words_of_its_prompt_and_counted(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": PROMPT}])

    assert answer.choices[0].message.content == "one two three one"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 4, 7)


async def test_a_streamed_chat_has_a_role_a_piece_for_each_token_an_end_and_its_usage(
    client: openai.AsyncOpenAI,
) -> None:
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": PROMPT}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]

    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert texts == ["one", " two", " three", " one"]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


async def test_a_limit_cuts_an_answer_and_says_so(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": PROMPT}], max_completion_tokens=2
    )

    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "length"


async def test_a_completion_is_answered_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model="m", prompt=PROMPT, max_tokens=6, extra_body={"ignore_eos": True})
    pieces = [
        chunk.choices[0].text async for chunk in await client.completions.create(model="m", prompt=PROMPT, stream=True)
    ]

    assert whole.choices[0].text == "one two three one two three"
    assert "".join(pieces) == "one two three one"


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["m"]


async def test_a_bad_request_is_refused_with_a_reason(client: openai.AsyncOpenAI) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="messages must be a list"):
        await client.chat.completions.create(model="m", messages=[])


async def test_more_requests_than_slots_wait_in_order() -> None:
    import openai

    plan = EnginePlan(slots=2)
    async with (
        serve_engine(plan) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none") as client,
        asyncio.TaskGroup() as tasks,
    ):
        engine.hold()
        for number, rid in enumerate("abcd", start=1):
            tasks.create_task(client.completions.create(model="m", prompt=PROMPT, extra_body={"rid": rid}))
            await engine.until(lambda number=number: len(engine.running + engine.waiting) == number)
        assert (engine.running, engine.waiting) == (("a", "b"), ("c", "d"))

        engine.finish("b")
        await engine.until(lambda: engine.running == ("a", "c"))
        assert (engine.waiting, engine.answered) == (("d",), ("b",))
        engine.core.validate()
        engine.finish()
