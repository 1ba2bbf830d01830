"""Files and batches of our own servers, by the official client and in the raw form; another's are nobody's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from headgate.models import serve
from headgate.simulation.engines import EnginePlan
from tests.elastic.gateway.door import opened

if TYPE_CHECKING:
    import openai

URL = "/v1/chat/completions"


def line(custom_id: str, model: str, **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": "one two three"}], **more.pop("body", {})}
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": body} | more


def jsonl(*lines: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(each) for each in lines).encode()


class Site:
    """A server with both routes, and clients of it."""

    def __init__(self, base_url: str, model: str, client: Callable[[str], openai.AsyncOpenAI]) -> None:
        self.base_url, self.model, self.client = base_url, model, client

    async def ended(self, client: openai.AsyncOpenAI, data: bytes, **more: Any) -> Any:
        """Run a batch to its end."""
        file = await client.files.create(file=("in.jsonl", data), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **more
        )
        async with asyncio.timeout(20):
            while batch.status not in {"completed", "failed", "cancelled", "expired"}:
                await asyncio.sleep(0.01)
                batch = await client.batches.retrieve(batch.id)
        return batch


@pytest.fixture(params=["baselines", "elastic"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    import openai

    async with AsyncExitStack() as stack:
        if request.param == "baselines":
            base_url, model = (await stack.enter_async_context(serve())).base_url, "baseline-judge"
        else:
            door = await stack.enter_async_context(
                opened(
                    EnginePlan(model="m", reply_tokens=4),
                    tokens_env={"a": "A", "b": "B"},
                    environ={"A": "a", "B": "b"},
                )
            )
            base_url, model = door.gateway.base_url, "m"
        clients = {
            token: await stack.enter_async_context(openai.AsyncOpenAI(base_url=base_url, api_key=token, max_retries=0))
            for token in ("a", "b")
        }
        yield Site(base_url, model, clients.__getitem__)


async def test_the_official_client_runs_a_batch_and_nobody_else_sees_it(site: Site) -> None:
    import openai

    mine, other = site.client("a"), site.client("b")
    lines = [line(f"r{n}", site.model) for n in range(20)] + [line("bad", site.model, body={"messages": []})]
    batch = await site.ended(mine, jsonl(*lines), metadata={"for": "tests"})
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 20, 1)
    found = [json.loads(each) for each in (await mine.files.content(batch.output_file_id)).text.splitlines()]
    assert {each["custom_id"] for each in found} == {f"r{n}" for n in range(20)}
    assert all(each["response"]["body"]["choices"][0]["message"]["content"] for each in found)
    (wrong,) = (json.loads(each) for each in (await mine.files.content(batch.error_file_id)).text.splitlines())
    assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("bad", 400)
    assert [each.id async for each in mine.batches.list()] == [batch.id]
    assert len([each async for each in mine.files.list(purpose="batch")]) == 1

    assert [each.id async for each in other.batches.list()] == []
    for asked in (
        other.batches.retrieve(batch.id),
        other.batches.cancel(batch.id),
        other.files.content(batch.output_file_id),
        other.files.delete(batch.input_file_id),
    ):
        with pytest.raises(openai.NotFoundError):
            await asked
    with pytest.raises(openai.ConflictError, match="it is completed"):
        await mine.batches.cancel(batch.id)
    assert (await mine.files.delete(batch.input_file_id)).deleted


async def test_what_a_batch_cannot_be_is_told_and_one_key_makes_one_batch(site: Site) -> None:
    import openai

    client = site.client("a")
    twice = line("a", site.model)
    for data, code in (
        (b"no json", "invalid_json_line"),
        (b"\n", "empty_file"),
        (jsonl(twice, twice), "duplicate_custom_id"),
        (jsonl(line("a", site.model), line("b", "another")), "mismatched_model"),
        (jsonl(line("a", site.model, url="/v1/embeddings")), "mismatched_endpoint"),
    ):
        batch = await site.ended(client, data)
        assert (batch.status, batch.errors.data[0].code) == ("failed", code)
    for purpose, data in (("fine-tune", b"x"), ("batch", b"")):
        with pytest.raises(openai.BadRequestError):
            await client.files.create(file=("in.jsonl", data), purpose=purpose)  # type: ignore[arg-type]
    file = await client.files.create(file=("in.jsonl", jsonl(line("a", site.model))), purpose="batch")
    asked: dict[str, Any] = {
        "input_file_id": file.id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "extra_headers": {"Idempotency-Key": "one"},
    }
    assert (await client.batches.create(**asked)).id == (await client.batches.create(**asked)).id
    for changed in ({"input_file_id": "file-none"}, {"endpoint": "/v1/embeddings"}, {"metadata": {"a": "b" * 600}}):
        with pytest.raises(openai.BadRequestError):
            await client.batches.create(**(asked | {"extra_headers": {}} | changed))
