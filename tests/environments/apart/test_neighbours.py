"""A model whose answers block a process keeps nobody else's episodes waiting: they go on in another process."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from headgate.environments.apart import process
from headgate.environments.shares import MODEL

LIMITS = itertools.count(1000.0)


@pytest.fixture
def crowded(registry_under, monkeypatch):
    """A registry whose collection has one process, in which answers may take for ever."""
    monkeypatch.setattr(process, "_STALLED_S", 0.05)
    return registry_under(processes=1, call_s=next(LIMITS))  # other limits, other processes


def as_model(name, coroutine):
    async def run():
        MODEL.set(name)
        return await coroutine

    return asyncio.ensure_future(run())


async def opened(registry, model):
    return await as_model(model, registry.environment("odd:remembers").open(0, 0))


async def told(model, episode, reply):
    return (await as_model(model, episode.answer(reply))).messages[0].content


async def begun(model, episode, child):
    """Let a model block a process; return its call once the process is at it."""
    call = as_model(model, episode.answer("block"))
    while not any(call.begun_at for call in tuple(child._calls._open.values())):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    return call


async def test_an_episode_whose_process_another_model_blocks_goes_on_where_it_was(crowded, children_of):
    ordinary, hostile = await opened(crowded, "ordinary"), await opened(crowded, "hostile")
    assert await told("ordinary", ordinary, "one") == "one"
    (child,) = children_of(crowded)
    call = await begun("hostile", hostile, child)
    assert await told("ordinary", ordinary, "two") == "one two"
    await ordinary.close()
    assert not call.done()
    again, beside = await opened(crowded, "ordinary"), as_model("hostile", hostile_open(crowded))
    assert await told("ordinary", again, "three") == "three"
    assert not beside.done(), "it is where its model's answer blocks"
    assert {other.blocked_by == {"hostile"} for other in children_of(crowded)} == {True, False}
    beside.cancel()
    child.kill()
    await asyncio.gather(call, beside, return_exceptions=True)
    await hostile.close()
    await again.close()


async def hostile_open(registry):
    return await registry.environment("odd:remembers").open(0, 0)


async def test_episodes_that_were_not_asked_outlive_a_process_that_another_model_blocked(crowded, children_of):
    waiting, idle, hostile = [await opened(crowded, model) for model in ("ordinary", "idle", "hostile")]
    assert await told("idle", idle, "one") == "one"
    (child,) = children_of(crowded)
    call = await begun("hostile", hostile, child)
    assert await told("ordinary", waiting, "one") == "one"
    child.kill()
    assert await told("idle", idle, "two") == "one two"
    await asyncio.gather(call, return_exceptions=True)
    for episode in (waiting, idle, hostile):
        await episode.close()


async def test_where_others_need_its_place_a_blocked_process_is_ended(crowded, children_of):
    ordinary = await opened(crowded, "ordinary")
    calls = []
    for model in ("h1", "h2", "h3"):
        hostile = await opened(crowded, model)
        (child,) = [child for child in children_of(crowded) if not child.blocked_by]
        calls.append(await begun(model, hostile, child))
        await told("ordinary", ordinary, model)
    assert await told("ordinary", ordinary, "end") == "h1 h2 h3 end"
    assert len(children_of(crowded)) == 2
    for child in children_of(crowded):
        child.kill()
    await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(Exception, match="ended in answer"):
        await told("ordinary", ordinary, "more")
    await ordinary.close()
