"""The requests of one episode: their attempts, waits and events, over real sockets."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

import headgate
from headgate.config import Settings
from headgate.core import ChatError, ChatReply, Clock, ErrorKind, Model, SystemClock, events, sample_task
from headgate.core.errors import InvalidSettingError
from headgate.core.rates import ModelRates, RateLimits
from headgate.models import ChatClient
from headgate.run import EndpointChats, RequestSide
from tests.admission.toy_laws import FixedLaw
from tests.models.doubles import HELLO, JumpingClock
from tests.models.raw_server import completion, raw_server, read_request, response

MODEL = Model("m", "r2")
TASK = sample_task(campaign="c", model="m@r2", environment="test:free", sequence=3, data_length=10, due_at=0.0)
TRACE = "0123456789abcdef" * 2
BUSY = response(b"{}", "429 Too Many Requests", "Retry-After: 3\r\n")
DOWN = response(b"{}", "503 Service Unavailable")
FINE = response(completion("at last", usage={"prompt_tokens": 2, "completion_tokens": 1}))


def in_turn(*answers: bytes) -> Callable[..., Awaitable[None]]:
    """Answer each request of any connection with the next of `answers`, the last one for ever."""
    left = list(answers)

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await read_request(reader)

    return script


class Asking:
    """One model behind an address, and what was told of it."""

    def __init__(self, url: str, clock: Clock | None = None, **settings: object) -> None:
        self.model = replace(MODEL, base_url=url)
        self.events: list[events.Event] = []
        self.clock = clock or JumpingClock()
        self.requests = RequestSide(
            Settings(campaign="c", **settings),  # type: ignore[arg-type]
            clock=self.clock,
            emit=lambda _: None,
            rng=random.Random(1),
            make_law=FixedLaw,
        )
        self.requests.register(self.model)

    async def ask(self, times: int = 1) -> ChatReply:
        # What the executor tells and what the conversation tells is one stream in a campaign.
        self.requests.executor._emit = self.events.append
        async with ChatClient() as client:
            chats = EndpointChats(client, self.requests, clock=self.clock)
            chat = chats.chat(self.model, TASK, self.events.append, trace_id=TRACE)
            for _ in range(times - 1):
                await chat(HELLO)
            return await chat(HELLO)


async def test_a_reply_after_two_failures_sums_its_attempts_and_waits() -> None:
    clock = JumpingClock()
    async with raw_server(in_turn(BUSY, DOWN, FINE)) as url:
        reply = await Asking(url, clock).ask()
    assert (reply.text, reply.attempts) == ("at last", 3)
    assert 3 <= clock.slept[0] <= 3.3
    assert 0.5 <= clock.slept[1] <= 1
    assert reply.wait_s == pytest.approx(sum(clock.slept))


async def test_each_attempt_and_each_wait_is_told_in_their_order() -> None:
    clock = JumpingClock()
    async with raw_server(in_turn(BUSY, FINE)) as url:
        asking = Asking(url, clock)
        await asking.ask()
    refused, delayed, answered = asking.events
    request = f"{TRACE}.1"
    assert refused == events.RequestFinished(
        "m@r2", "rate_limited", 0.0, 429, 0, 0, request, 1, refused.lease_id, TASK.task_id, TRACE
    )
    assert delayed == events.RequestDelayed("m@r2", "rate_limited", clock.slept[0], 1, request, TASK.task_id, TRACE)
    assert answered == events.RequestFinished(
        "m@r2", "success", 0.0, 200, 2, 1, request, 2, answered.lease_id, TASK.task_id, TRACE
    )


async def test_the_requests_of_an_episode_are_numbered() -> None:
    async with raw_server(in_turn(FINE)) as url:
        asking = Asking(url)
        await asking.ask(times=3)
    assert [e.request_id for e in asking.events] == [f"{TRACE}.{n}" for n in (1, 2, 3)]


async def test_the_error_after_the_last_attempt_carries_the_totals() -> None:
    clock = JumpingClock()
    async with raw_server(in_turn(DOWN)) as url:
        asking = Asking(url, clock)
        with pytest.raises(ChatError) as caught:
            await asking.ask()
    error = caught.value
    assert (error.kind, error.status, error.attempts) == (ErrorKind.PROVIDER_FAILURE, 503, 4)
    assert error.wait_s == pytest.approx(sum(clock.slept))
    assert [type(event).__name__ for event in asking.events].count("RequestFinished") == 4
    assert len(clock.slept) == 3


async def test_a_bad_request_is_sent_once() -> None:
    clock = JumpingClock()
    async with raw_server(in_turn(response(b"{}", "400 Bad Request"))) as url:
        with pytest.raises(ChatError) as caught:
            await Asking(url, clock).ask()
    assert (caught.value.kind, caught.value.attempts, clock.slept) == (ErrorKind.BAD_REQUEST, 1, [])


async def test_a_cancelled_attempt_is_told_as_cancelled() -> None:
    asked = asyncio.Event()

    async def silent(_: int, __: bytes, reader: asyncio.StreamReader, ___: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async with raw_server(silent) as url:
        asking = Asking(url, SystemClock())
        task = asyncio.create_task(asking.ask())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (event,) = asking.events
    assert isinstance(event, events.RequestFinished)
    assert event.outcome == "cancelled"
    assert not asking.requests.admission.in_flight(url)


async def test_a_request_that_waited_too_long_for_admission_is_rate_limited() -> None:
    async with raw_server(in_turn(FINE)) as url:
        asking = Asking(url, SystemClock(), request_queue_wait_s=0.05)
        asking.requests.admission.set_provider_cap(url, 0)
        with pytest.raises(ChatError, match="queue_timeout") as caught:
            await asking.ask()
    assert (caught.value.kind, caught.value.attempts) == (ErrorKind.RATE_LIMITED, 0)
    assert caught.value.wait_s >= 0.05


async def test_a_request_after_the_end_of_the_campaign_is_cancelled() -> None:
    asking = Asking("http://127.0.0.1:9/v1")
    asking.requests.close("the campaign has ended")
    with pytest.raises(ChatError, match="the campaign has ended") as caught:
        await asking.ask()
    assert caught.value.kind is ErrorKind.CANCELLED


@pytest.mark.parametrize("cap", [0, -1])
def test_a_model_without_a_slot_is_refused(cap: int) -> None:
    with pytest.raises(InvalidSettingError, match=f"must be >= 1 \\(got {cap}\\)"):
        Asking("http://one/v1").requests.register(replace(MODEL, base_url="http://one/v1", max_parallel=cap))


async def test_a_model_that_moves_is_asked_at_both_addresses_until_its_last_episode_ended() -> None:
    asking = Asking("http://old/v1")
    moved = replace(asking.model, base_url="http://new/v1")
    asking.requests.register(moved)
    assert [s.provider for s in asking.requests.status()] == ["http://old/v1", "http://new/v1"]
    asking.requests.settle(moved.key)
    assert [s.provider for s in asking.requests.status()] == ["http://new/v1"]
    asking.requests.dismiss(moved.key)
    asking.requests.settle(moved.key)
    assert asking.requests.status() == ()


async def test_a_model_that_comes_back_before_it_has_gone_stays() -> None:
    asking = Asking("http://old/v1")
    asking.requests.dismiss(asking.model.key)
    asking.requests.register(asking.model)
    asking.requests.settle(asking.model.key)
    assert [s.models for s in asking.requests.status()] == [("m@r2",)]


def test_no_other_place_of_the_library_sends_chat_requests() -> None:
    root = Path(headgate.__file__).parents[2]
    senders = {
        path.relative_to(root).as_posix()
        for folder in ("lib", "flows", "blocks")
        for path in (root / folder).rglob("*.py")
        if re.search(r"client\.chat(\.completions\.create)?\(", path.read_text("utf-8"))
    }
    apparatus = ("lib/headgate_bench/rivals/", "lib/headgate_bench/hostile/")
    rivals = {path for path in senders if path.startswith(apparatus)}
    assert senders - rivals == {"lib/headgate/run/endpoints.py"}


async def test_a_prompt_larger_than_a_minutes_tokens_is_a_failure_at_once_and_nothing_is_sent() -> None:
    async with raw_server(in_turn(FINE)) as url:
        asking = Asking(url)
        asking.model = replace(asking.model, rates=ModelRates(own=RateLimits(input_tokens_per_minute=5)))
        asking.requests.register(asking.model)
        with pytest.raises(ChatError, match="more than the 5 input tokens that its model") as failed:
            await asking.ask()
    assert (failed.value.kind, failed.value.attempts) == (ErrorKind.BAD_REQUEST, 0)


async def test_the_headers_of_an_answer_lower_what_is_sent() -> None:
    told = response(
        completion("hello", usage={"prompt_tokens": 2, "completion_tokens": 1}),
        headers="x-ratelimit-limit-requests: 6\r\nx-ratelimit-remaining-requests: 0\r\n",
    )
    async with raw_server(in_turn(told)) as url:
        asking = Asking(url)
        await asking.ask()
        pressure = asking.requests.pressure("m@r2")
        assert pressure is not None
        assert pressure.reason.value == "requests_per_minute"
        (status,) = asking.requests.status()
        assert [(rate.unit, rate.limit, rate.is_told) for rate in status.rates] == [("requests_per_minute", 6, True)]
