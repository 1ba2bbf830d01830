"""From what a user writes to an adapter: addresses, kinds, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.elastic.engines import EngineSpec, RayActorEngine, open_engine
from headgate.elastic.errors import EngineError, InvalidElasticError, NotAnEngineError
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.engines.actors import Handle, Rollout
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.routers import serve_router
from tests.elastic.engines.subjects import PATIENT


@pytest.mark.parametrize("api", ["sglang", "vllm"])
@pytest.mark.parametrize("has_dev_mode", [True, False])
async def test_an_engine_is_asked_what_it_is(opened: Open, api: str, has_dev_mode: bool) -> None:
    async with serve_engine(EnginePlan(api=api, has_dev_mode=has_dev_mode)) as fake:
        engine = await opened(url=fake.url)

        assert engine.kind == api


async def test_the_one_that_is_asked_may_want_a_key(opened: Open) -> None:
    async with serve_engine(EnginePlan(api_key="right-key")) as fake:
        assert (await opened(url=fake.url, api_key="right-key")).kind == "sglang"

        with pytest.raises(NotAnEngineError, match="401") as refused:
            await opened(url=fake.url)

    assert refused.value.next_step == "Give the engine's api_key."


async def test_a_gateway_is_told_from_an_engine(opened: Open) -> None:
    async with serve_router() as router:
        with pytest.raises(NotAnEngineError, match=f"{router.url} is a gateway and no engine") as refused:
            await opened(url=router.url)

    assert "goes into its `router`" in refused.value.next_step


async def test_what_speaks_no_api_is_no_engine(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        with pytest.raises(NotAnEngineError, match="speaks neither SGLang's API nor vLLM's"):
            await opened(url=f"{fake.url}/elsewhere")


async def test_where_nobody_listens_there_may_be_an_engine_later(opened: Open) -> None:
    async with serve_engine() as fake:
        pass
    with pytest.raises(EngineError, match="no process listens there"):
        await opened(url=fake.url)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://gpu-1:30000/", "http://gpu-1:30000"),
        ("http://GPU-1:30000/v1", "http://gpu-1:30000"),
        ("https://engines.example/one/v1/", "https://engines.example/one"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("ray://rollout-3", "ray://rollout-3"),
    ],
)
def test_an_address_has_one_form(written: str, url: str) -> None:
    assert EngineSpec(url=written).url == url


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"url": "gpu-1:30000"}, r"must be http://host:port or ray://name \(got 'gpu-1:30000'\)"),
        ({"url": "http://gpu-1:port"}, r"must be http://host:port \(got"),
        ({"url": "http://gpu-1:1?key=x"}, "must be http://host:port"),
        ({"url": "ray://"}, "must be http://host:port or ray://name"),
        ({"url": "http://me:secret@gpu-1"}, "must not hold a user or password"),
        ({"url": "http://gpu-1", "kind": "ray"}, "kind 'ray' does not go with the url"),
        ({"url": "ray://a", "kind": "vllm"}, "kind 'vllm' does not go with the url"),
        ({"url": "ray://a", "router": "http://gpu-1:3"}, "an actor cannot be a worker of the gateway"),
        ({"url": "ray://a", "slots": 3}, "must not be given for an actor, whose load"),
        ({"url": "http://gpu-1", "slots": 0}, r"an engine: slots must be greater than or equal to 1 \(got 0\)"),
        ({"url": "http://gpu-1", "kind": "tgi"}, "an engine: kind must be 'auto', 'sglang', 'vllm' or"),
        ({"url": "http://gpu-1", "api-key": "x"}, "an engine: there is no setting api-key; did you mean 'api_key'"),
        ({}, "an engine: url is missing"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(written: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidElasticError, match=said) as refused:
        EngineSpec(**written)

    assert "secret" not in str(refused.value)


def test_keys_are_not_shown() -> None:
    spec = EngineSpec(url="http://gpu-1", api_key="my-own-key", admin_key="my-own-key", router_key="my-own-key")

    assert "my-own-key" not in repr(spec)


@pytest.mark.parametrize("api", ["sglang", "vllm"])
@pytest.mark.parametrize(("written", "slots"), [(3, 3), (100, 8), (None, 8)])
async def test_an_engine_is_given_no_more_than_is_written_and_than_it_runs(
    opened: Open, api: str, written: int | None, slots: int
) -> None:
    async with serve_engine(EnginePlan(api=api)) as fake:
        engine = await opened(url=fake.url, slots=written)

        assert (await engine.check()).slots == slots
        assert (await engine.load()).slots == slots


async def test_an_actor_is_found_by_its_name(tmp_path: Path) -> None:
    handle = Handle(Rollout())
    engine = await open_engine(EngineSpec(url="ray://rollout-3"), PATIENT, find_actor={"rollout-3": handle}.__getitem__)

    assert isinstance(engine, RayActorEngine)
    assert (await engine.check()).slots == 8


async def test_an_actor_is_not_looked_for_without_ray(opened: Open) -> None:
    with pytest.raises(InvalidElasticError, match="is a Ray actor, and no Ray cluster is connected here"):
        await opened(url="ray://rollout")
