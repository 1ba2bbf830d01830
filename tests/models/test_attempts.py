from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from headgate.core import ChatError, ChatReply, ErrorKind, Model, SystemClock, events
from headgate.models import ChatClient, FaultPlan, Gate, RetryPolicy, SimulationPlan, ask, open_gate, serve
from tests.models.doubles import HELLO, JumpingClock
from tests.models.raw_server import completion, raw_server, read_request, response

MODEL = Model("m", "r2")
POLICY = RetryPolicy()


async def asked(url: str, clock: JumpingClock, emitted: list[events.Event], gate: Gate = open_gate) -> ChatReply:
    async with ChatClient() as client:
        return await ask(
            client,
            replace(MODEL, base_url=url),
            HELLO,
            policy=POLICY,
            clock=clock,
            rng=random.Random(1),
            emit=emitted.append,
            gate=gate,
        )


def in_turn(*answers: bytes) -> Callable[..., object]:
    """Answer each request of any connection with the next of `answers`, the last one for ever."""
    left = list(answers)

    async def script(_: int, __: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await read_request(reader)

    return script


BUSY = response(b"{}", "429 Too Many Requests", "Retry-After: 3\r\n")
DOWN = response(b"{}", "503 Service Unavailable")
FINE = response(completion("at last", usage={"prompt_tokens": 2, "completion_tokens": 1}))


async def test_a_reply_after_two_failures_sums_its_attempts_and_waits() -> None:
    clock, emitted = JumpingClock(), []
    async with raw_server(in_turn(BUSY, DOWN, FINE)) as url:
        reply = await asked(url, clock, emitted)
    assert (reply.text, reply.attempts) == ("at last", 3)
    assert 3 <= clock.slept[0] <= 3.3
    assert 1 <= clock.slept[1] <= 2
    assert reply.wait_s == pytest.approx(sum(clock.slept))


async def test_each_attempt_and_each_wait_is_told_in_their_order() -> None:
    clock, emitted = JumpingClock(), []
    async with raw_server(in_turn(BUSY, FINE)) as url:
        await asked(url, clock, emitted)
    refused, delayed, answered = emitted
    assert refused == events.RequestFinished("m@r2", "rate_limited", 0.0, 429, 0, 0)
    assert delayed == events.RequestDelayed("m@r2", "rate_limited", clock.slept[0], 1)
    assert answered == events.RequestFinished("m@r2", "success", 0.0, 200, 2, 1)


async def test_the_error_after_the_last_attempt_carries_the_totals() -> None:
    clock, emitted = JumpingClock(), []
    async with raw_server(in_turn(DOWN)) as url:
        with pytest.raises(ChatError) as caught:
            await asked(url, clock, emitted)
    error = caught.value
    assert (error.kind, error.status, error.attempts) == (ErrorKind.PROVIDER_FAILURE, 503, 4)
    assert error.wait_s == pytest.approx(sum(clock.slept))
    assert [type(event).__name__ for event in emitted].count("RequestFinished") == 4
    assert len(clock.slept) == 3


async def test_a_bad_request_is_sent_once() -> None:
    clock, emitted = JumpingClock(), []
    async with raw_server(in_turn(response(b"{}", "400 Bad Request"))) as url:
        with pytest.raises(ChatError) as caught:
            await asked(url, clock, emitted)
    assert (caught.value.kind, caught.value.attempts, clock.slept) == (ErrorKind.BAD_REQUEST, 1, [])


async def test_every_attempt_passes_the_gate_which_sees_its_outcome_and_whose_wait_counts() -> None:
    clock, emitted, outcomes = JumpingClock(), [], []

    @asynccontextmanager
    async def gate(model: Model) -> AsyncIterator[None]:
        await clock.sleep(10)
        try:
            yield
        except ChatError as error:
            outcomes.append((model.key, error.kind.value))
            raise
        outcomes.append((model.key, "success"))

    async with raw_server(in_turn(BUSY, FINE)) as url:
        reply = await asked(url, clock, emitted, gate)
    assert outcomes == [("m@r2", "rate_limited"), ("m@r2", "success")]
    assert reply.wait_s == pytest.approx(sum(clock.slept)) == pytest.approx(20 + clock.slept[1])


async def test_no_gate_is_held_during_a_back_off() -> None:
    clock, emitted, held = JumpingClock(), [], 0
    during_sleep: list[int] = []

    @asynccontextmanager
    async def gate(_: Model) -> AsyncIterator[None]:
        nonlocal held
        held += 1
        try:
            yield
        finally:
            held -= 1

    class Watching(JumpingClock):
        async def sleep(self, seconds: float) -> None:
            during_sleep.append(held)

    clock = Watching()
    async with raw_server(in_turn(DOWN, FINE)) as url:
        await asked(url, clock, emitted, gate)
    assert during_sleep == [0]


async def test_a_cancelled_attempt_is_told_as_cancelled() -> None:
    emitted: list[events.Event] = []
    plan = FaultPlan.parse("hang")
    async with serve(plan, simulation=SimulationPlan(mean_s=0)) as endpoint, ChatClient() as client:
        model = Model("simulated", base_url=endpoint.base_url)
        task = asyncio.create_task(
            ask(client, model, HELLO, policy=POLICY, clock=SystemClock(), rng=random.Random(0), emit=emitted.append)
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (event,) = emitted
    assert isinstance(event, events.RequestFinished)
    assert event.outcome == "cancelled"
