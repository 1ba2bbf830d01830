"""Actors as engines: what their classes may look like, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.elastic.engines import EngineActor, Outgoing, RayActorEngine
from headgate.elastic.errors import EngineError, NotAnEngineError
from tests.elastic.engines.actors import Handle, Rollout
from tests.elastic.engines.subjects import CHAT, PATIENT, chat


class Plain:
    """An engine without a single `async`."""

    def __init__(self, answer: Any = None, **load: Any) -> None:
        self._answer = answer
        self._load = {"running": 0, **load}

    def chat(self, path: str, body: bytes, request_id: str) -> Any:
        return self._answer

    def load(self) -> Any:
        return self._load

    def sleep(self) -> None:
        self._load["is_asleep"] = True

    def wake(self) -> None:
        self._load["is_asleep"] = False

    def abort(self, request_id: str) -> None: ...


def engine_of(actor: object) -> RayActorEngine:
    return RayActorEngine("ray://rollout", Handle(actor), PATIENT)


def test_the_class_of_an_actor_is_a_protocol() -> None:
    assert isinstance(Plain(), EngineActor)
    assert isinstance(Rollout(), EngineActor)


@pytest.mark.parametrize(
    ("returned", "status", "body"),
    [
        (b'{"a":1}', 200, b'{"a":1}'),
        ('{"a":1}', 200, b'{"a":1}'),
        ({"a": 1}, 200, b'{"a":1}'),
        ((429, {"error": "later"}), 429, b'{"error":"later"}'),
        ((400, "no"), 400, b"no"),
    ],
)
async def test_an_answer_may_be_bytes_text_or_json_with_a_status_before_it(
    returned: object, status: int, body: bytes
) -> None:
    async with engine_of(Plain(returned)).answer(chat()) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        assert [chunk async for chunk in answer.chunks] == [body]


async def test_a_stream_may_begin_with_its_status_and_type() -> None:
    class Refusing(Plain):
        async def chat(self, path: str, body: bytes, request_id: str) -> Any:  # type: ignore[override]
            yield {"status": 400, "content_type": "application/json"}
            yield b'{"error":'
            yield b' "no"}'

    async with engine_of(Refusing()).answer(chat()) as answer:
        assert (answer.status, answer.content_type) == (400, "application/json")
        assert b"".join([chunk async for chunk in answer.chunks]) == b'{"error": "no"}'


async def test_an_engine_without_async_methods_sleeps_and_wakes() -> None:
    engine = engine_of(Plain(models=["one", "two"], slots=3))

    assert (await engine.check()).models == ("one", "two")
    await engine.sleep()
    assert (await engine.load()).is_asleep
    await engine.wake()
    assert (await engine.load()).slots == 3


async def test_an_actor_without_the_methods_is_refused_by_their_names() -> None:
    class NoEngine:
        def chat(self) -> None: ...
        def load(self) -> None: ...

    handle = Handle(NoEngine())
    with pytest.raises(NotAnEngineError, match="has no method sleep, wake, abort"):
        await RayActorEngine("ray://rollout", handle, PATIENT).check()


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"running": None}, "does not report running requests"),
        ({"running": -1}, r"running in load\(\) .* must be an integer >= 0 \(got -1\)"),
        ({"slots": "many"}, r"slots in load\(\) .* must be an integer >= 0 \(got 'many'\)"),
    ],
)
async def test_a_load_that_makes_no_sense_is_refused(load: dict[str, object], said: str) -> None:
    with pytest.raises(NotAnEngineError, match=said):
        await engine_of(Plain(**load)).check()


async def test_a_failure_of_the_actor_is_told_with_its_last_line() -> None:
    class Failing(Plain):
        def wake(self) -> None:
            raise RuntimeError("Traceback of the actor:\n  in line 12\nCUDA out of memory")

    with pytest.raises(EngineError, match=r"wake\(\) of the actor 'ray://rollout' failed: RuntimeError: CUDA out of"):
        await engine_of(Failing()).wake()


async def test_a_stream_that_fails_is_an_error_where_it_is_read() -> None:
    class Breaking(Plain):
        def chat(self, path: str, body: bytes, request_id: str) -> Any:
            return self._parts()

        async def _parts(self) -> Any:
            yield "data: one\n\n"
            raise RuntimeError("the actor died")

    class InPlace:
        """A handle whose generator raises in the reader."""

        def __init__(self, actor: Plain) -> None:
            self.chat = self.abort = self
            self._actor = actor

        def remote(self, *arguments: Any) -> Any:
            return self._actor.chat(*arguments) if len(arguments) == 3 else None

    engine = RayActorEngine("ray://rollout", InPlace(Breaking()), PATIENT)
    async with engine.answer(Outgoing("r1", CHAT, b"{}")) as answer:
        assert await anext(answer.chunks) == b"data: one\n\n"
        with pytest.raises(EngineError, match="the actor died"):
            await anext(answer.chunks)
    await engine.close()


async def test_a_request_that_ended_by_itself_is_not_aborted() -> None:
    rollout = Rollout()
    handle = Handle(rollout)
    engine = RayActorEngine("ray://rollout", handle, PATIENT)
    async with engine.answer(chat(stream=True)) as answer:
        assert [chunk async for chunk in answer.chunks][-1] == b"data: [DONE]\n\n"
    await engine.close()

    assert handle.calls == ["chat"]
