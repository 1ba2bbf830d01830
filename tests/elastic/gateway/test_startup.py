"""A pool served from its file, as a process of its own: it announces itself, drains when told, and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.elastic.errors import EngineError, InvalidElasticError, WorkerClaimedError
from headgate.elastic.gateway import PoolFile, read_pool_document, running_pool
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.gateway.door import CHAT, chat

PLAN = EnginePlan(model="m", reply_tokens=4)
SERVE = """
import sys
from pathlib import Path
from headgate.elastic.gateway import load_pool_file, running_pool, serve_pool
pool_file = load_pool_file(Path(sys.argv[1]))
serve_pool(lambda: running_pool(pool_file), lambda gateway: print(gateway.url, flush=True))
"""


def written(*engines: FakeEngine, pool: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "pool": {"name": "served", "engines": [engine.url for engine in engines]} | (pool or {}),
        "elastic_config": {"max_workers": 1, "engine_timeout": 2, "engine_attempts": 1},
        "gateway": {"port": 0},
    } | sections


def file_of(*engines: FakeEngine, **more: Any) -> PoolFile:
    return read_pool_document(written(*engines, **more))


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Process, aiohttp.ClientSession]]:
    """Give a process that serves a file, and a client of the address that it announced."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, str(path), stdout=PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession(url) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def stopping(client: aiohttp.ClientSession) -> None:
    """Return when the gateway has seen the signal."""
    mark = ""
    async with asyncio.timeout(60):
        while True:
            async with client.get("/elastic/v1/status?wait=60", headers={"If-None-Match": mark}) as answer:
                mark = answer.headers["ETag"]
                if (await answer.json())["is_draining"]:
                    return


@pytest.mark.slow
async def test_told_to_stop_it_answers_what_it_has_refuses_what_comes_and_ends_with_0(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    async with serve_engine(PLAN) as engine:
        path.write_text(json.dumps(written(engine)))
        engine.hold(after_tokens=1)
        async with served(path) as (process, client), client.post(CHAT, json=chat(stream=True)) as answer:
            await answer.content.readuntil(b"one")
            process.send_signal(signal.SIGTERM)
            await stopping(client)
            assert (await client.get("/health")).status == 503
            async with client.post(CHAT, json=chat()) as refused:
                assert (refused.status, "Retry-After" in refused.headers) == (503, True)
            engine.finish()

            assert (await answer.read()).endswith(b"data: [DONE]\n\n")
            assert await process.wait() == 0


@pytest.mark.slow
async def test_told_twice_it_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    async with serve_engine(PLAN) as engine:
        path.write_text(json.dumps(written(engine)))
        engine.hold()
        async with served(path) as (process, client):
            asking = asyncio.create_task(client.post(CHAT, json=chat()))
            await engine.until(lambda: len(engine.running) == 1)
            process.send_signal(signal.SIGINT)
            await stopping(client)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
            with pytest.raises(aiohttp.ClientError):
                (await asking).raise_for_status()


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
    with pytest.raises(EngineError, match=f"{first.url}.*nobody listens there; .*{second.url}.*nobody listens there"):
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
