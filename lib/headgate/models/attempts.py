"""One chat request with its retries: each attempt admitted, sent, told of, and waited for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from headgate.core import ChatError, ChatReply, Clock, ErrorKind, Message, Model, events
from headgate.models.client import ChatClient
from headgate.models.retry import GiveUp, RetryPolicy

Gate = Callable[[Model], AbstractAsyncContextManager[object]]
"""Admits one attempt. Entering may wait; leaving tells the outcome: the `ChatError` in flight, none for a success."""


def open_gate(_: Model) -> AbstractAsyncContextManager[object]:
    """Admit every attempt at once."""
    return nullcontext()


async def ask(
    client: ChatClient,
    model: Model,
    messages: Sequence[Message],
    *,
    policy: RetryPolicy,
    clock: Clock,
    rng: random.Random,
    emit: events.Emit,
    task_header: str | None = None,
    gate: Gate = open_gate,
) -> ChatReply:
    """Return the model's reply after as many attempts as `policy` allows.

    `attempts` and `wait_s` of the reply, or of the error, are sums over all attempts; a wait is time spent at the gate
    and in back-off. Emits one `RequestFinished` per attempt (a cancelled one included) and one `RequestDelayed` per
    back-off.

    Raises:
        ChatError: of the last attempt.
    """
    attempt, wait_s = 0, 0.0
    while True:
        attempt += 1
        asked = clock.monotonic()
        try:
            async with gate(model):
                wait_s += clock.monotonic() - asked
                reply = await _attempt(client, model, messages, task_header, clock, emit)
            return replace(reply, attempts=attempt, wait_s=wait_s)
        except ChatError as error:
            error.attempts, error.wait_s = attempt, wait_s
            decision = policy.decide(attempt, error.kind, error.retry_after_s, rng)
            if isinstance(decision, GiveUp):
                raise
            emit(events.RequestDelayed(model.key, error.kind.value, decision.after_s, attempt))
        paused = clock.monotonic()
        await clock.sleep(decision.after_s)
        wait_s += clock.monotonic() - paused


async def _attempt(
    client: ChatClient,
    model: Model,
    messages: Sequence[Message],
    task_header: str | None,
    clock: Clock,
    emit: events.Emit,
) -> ChatReply:
    began = clock.monotonic()

    def finished(outcome: str, status: int | None, reply: ChatReply | None = None) -> None:
        prompt, completion = (reply.prompt_tokens, reply.completion_tokens) if reply else (0, 0)
        emit(events.RequestFinished(model.key, outcome, clock.monotonic() - began, status, prompt, completion))

    try:
        reply = await client.chat(model, messages, task_header=task_header)
    except ChatError as error:
        finished(error.kind.value, error.status)
        raise
    except asyncio.CancelledError:
        finished(ErrorKind.CANCELLED.value, None)
        raise
    finished("success", 200, reply)
    return reply
