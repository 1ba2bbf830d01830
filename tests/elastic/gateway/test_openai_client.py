"""The official client of OpenAI works unchanged: sync and async, streamed and not, its errors its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from headgate.simulation.engines import EnginePlan
from tests.elastic.gateway.door import Door, opened

if TYPE_CHECKING:
    import openai

MESSAGES = [{"role": "user", "content": "one two three"}]


@pytest.fixture(params=["sglang", "vllm"])
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(EnginePlan(api=request.param, model="m", reply_tokens=4)) as running:
        yield running


@pytest.fixture
async def client(door: Door) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(base_url=door.gateway.base_url, api_key="none", max_retries=0) as client:
        yield client


async def test_a_chat_is_answered(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=MESSAGES)

    assert answer.choices[0].message.content == "one two three one"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert answer._request_id


async def test_a_chat_is_streamed_to_its_end(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert texts == ["one", " two", " three", " one"]
    assert chunks[-1].usage is not None


async def test_a_completion_is_answered_and_streamed(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="m", prompt="one two")
    stream = await client.completions.create(model="m", prompt="one two", stream=True)

    assert answer.choices[0].text == "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])


async def test_models_are_listed_and_shown(client: openai.AsyncOpenAI) -> None:
    import openai

    assert [model.id async for model in client.models.list()] == ["m"]
    assert (await client.models.retrieve("m")).id == "m"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_the_client_without_a_loop_works_as_well(door: Door) -> None:
    import openai

    def ask() -> tuple[str | None, list[str | None]]:
        with openai.OpenAI(base_url=door.gateway.base_url, api_key="none", max_retries=0) as client:
            answer = client.chat.completions.create(model="m", messages=MESSAGES)
            stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            return answer.choices[0].message.content, [chunk.choices[0].delta.content for chunk in stream]

    text, pieces = await asyncio.to_thread(ask)

    assert text == "".join(piece or "" for piece in pieces) == "one two three one"


async def test_an_unknown_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="no model 'other' is served by the pool tests, but m") as caught:
        await client.chat.completions.create(model="other", messages=MESSAGES)
    assert caught.value.code == "unknown_model"


async def test_what_the_engine_refuses_is_refused_in_its_words(client: openai.AsyncOpenAI) -> None:
    import openai

    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}], max_tokens=-1)


async def test_a_full_pool_is_a_rate_limit_with_a_time_to_come_again() -> None:
    import openai

    async with (
        opened(EnginePlan(model="m", slots=1), config={"max_queue": 0}) as door,
        openai.AsyncOpenAI(base_url=door.gateway.base_url, api_key="none", max_retries=0) as client,
    ):
        door.engine.hold()
        door.ask()
        await door.engine.until(lambda: len(door.engine.running) == 1)

        with pytest.raises(openai.RateLimitError, match="max_queue") as caught:
            await client.chat.completions.create(model="m", messages=MESSAGES)

        assert caught.value.code == "pool_full"
        assert caught.value.response.headers["Retry-After"] == "1"
        assert float(caught.value.response.headers["retry-after-ms"]) == 1000


async def test_a_stream_that_breaks_is_an_error_of_the_client_and_does_not_end_as_if_it_were_whole() -> None:
    import openai

    async with (
        opened(EnginePlan(model="m", reply_tokens=4)) as door,
        openai.AsyncOpenAI(base_url=door.gateway.base_url, api_key="none", max_retries=0) as client,
    ):
        door.engine.hold(after_tokens=2)
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        texts: list[str | None] = []

        async def read() -> None:
            async for chunk in stream:
                texts.append(chunk.choices[0].delta.content)
                if texts[-1] == " two":
                    door.engine.crash()

        with pytest.raises(openai.APIError) as caught:
            await read()

        assert [text for text in texts if text] == ["one", " two"]
        assert caught.value.code == "request_lost"


async def test_a_wrong_token_is_an_authentication_error_and_the_right_one_is_none() -> None:
    import openai

    async with opened(tokens_env={"alice": "ALICE"}, environ={"ALICE": "the-right-token"}) as door:
        for token, is_right in (("wrong", False), ("the-right-token", True)):
            async with openai.AsyncOpenAI(base_url=door.gateway.base_url, api_key=token, max_retries=0) as client:
                if is_right:
                    assert [model.id async for model in client.models.list()] == ["m"]
                    continue
                with pytest.raises(openai.AuthenticationError) as caught:
                    await client.chat.completions.create(model="m", messages=MESSAGES)
                assert caught.value.code == "unauthorized"
