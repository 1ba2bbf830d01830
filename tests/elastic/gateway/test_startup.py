"""A pool opened from its file: what is wrong with the file, its engines or its port is told before it serves."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.elastic.errors import EngineError, InvalidElasticError, WorkerClaimedError
from headgate.elastic.gateway import PoolFile, read_pool_document, running_pool
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.gateway.door import CHAT, chat

PLAN = EnginePlan(model="m", reply_tokens=4)


def written(*engines: FakeEngine, pool: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "pool": {"name": "served", "engines": [engine.url for engine in engines]} | (pool or {}),
        "elastic_config": {"max_workers": 1, "engine_timeout": 2, "engine_attempts": 1},
        "gateway": {"port": 0},
    } | sections


def file_of(*engines: FakeEngine, **more: Any) -> PoolFile:
    return read_pool_document(written(*engines, **more))


async def test_a_model_that_the_engines_do_not_serve_is_refused_at_the_start() -> None:
    async with serve_engine(PLAN) as engine:
        with pytest.raises(InvalidElasticError, match=r"got 'other'; they serve m\)"):
            async with running_pool(file_of(engine, pool={"model": "other"}), environ={}):
                pass


async def test_an_engine_that_does_not_answer_is_named() -> None:
    async with serve_engine(PLAN) as engine:
        pass
    with pytest.raises(EngineError, match=engine.url):
        async with running_pool(file_of(engine), environ={}):
            pass


async def test_everything_that_is_wrong_with_engines_is_told_at_once() -> None:
    async with serve_engine(PLAN) as first, serve_engine(PLAN) as second:
        pass
    with pytest.raises(
        EngineError, match=f"{first.url}.*no process listens there; .*{second.url}.*no process listens there"
    ):
        async with running_pool(file_of(first, second), environ={}):
            pass


async def test_an_engine_that_does_not_answer_yet_is_taken_for_one_like_the_others() -> None:
    async with serve_engine(PLAN) as gone:
        pass
    async with serve_engine(PLAN) as engine, running_pool(file_of(gone, engine), environ={}) as gateway:
        workers = gateway.status().pool.workers
    assert {worker.worker_id: worker.kind for worker in workers} == {gone.url: "sglang", engine.url: "sglang"}


async def test_where_kinds_are_mixed_an_engine_that_does_not_answer_is_named() -> None:
    async with serve_engine(PLAN) as gone:
        pass
    vllm = EnginePlan(api="vllm", model="m")
    async with serve_engine(PLAN) as engine, serve_engine(vllm) as other:
        with pytest.raises(EngineError, match=gone.url):
            async with running_pool(file_of(gone, engine, other), environ={}):
                pass


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"elastic_config": {"min_workers": 2, "max_workers": 2}}, r"min_workers must be <= .* \(got 2 > 1\)"),
        (
            {"pool": {"engines": ["http://127.0.0.1:9", "http://localhost:9/v1"]}},
            "once .*:9 and .*localhost:9",
        ),
        ({"gateway": {"port": 0, "tokens_env": "NOT_SET"}}, "NOT_SET, which is not set"),
        ({"gateway": {"port": 0, "host": "0.0.0.0"}}, "may only listen on a loopback address"),
    ],
    ids=["too few workers", "one engine twice", "no token", "no tokens"],
)
async def test_what_no_engine_can_change_is_told_before_any_is_asked(more: dict[str, Any], says: str) -> None:
    async with serve_engine(PLAN) as engine:
        with pytest.raises(HeadgateError, match=says):
            async with running_pool(file_of(engine, **more), environ={}):
                pass
        assert engine.calls == ()


async def test_an_engine_belongs_to_one_pool() -> None:
    async with serve_engine(PLAN) as engine, running_pool(file_of(engine), environ={}):
        with pytest.raises(WorkerClaimedError, match="pool 'served'"):
            async with running_pool(file_of(engine), environ={}):
                pass


async def test_a_port_that_is_taken_is_told() -> None:
    async with serve_engine(PLAN) as engine, serve_engine(PLAN) as other:
        port = int(other.url.rpartition(":")[2])
        with pytest.raises(InvalidInputError, match=f"port {port} of 127.0.0.1 is in use"):
            async with running_pool(file_of(engine, gateway={"port": port}), environ={}):
                pass
        assert engine.calls == (), "it is told before an engine is asked or woken"


async def test_the_keys_of_engines_come_from_their_variables() -> None:
    async with serve_engine(EnginePlan(model="m", api_key="key-of-the-engine")) as engine:
        pool = {"engines": [{"url": engine.url, "kind": "sglang", "api_key_env": "ENGINE_KEY"}]}
        async with (
            running_pool(file_of(engine, pool=pool), environ={"ENGINE_KEY": "key-of-the-engine"}) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
            client.post(CHAT, json=chat()) as answer,
        ):
            assert answer.status == 200
