"""What the tests of this room share: an environment with known baselines, a clock that jumps, and calls in short."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headgate.core import ChatError, ChatReply, Message, Model
from headgate.environments import EnvironmentSpec, Episode
from headgate.models import ChatClient, ClientSettings

HELLO = (Message("user", "hello"),)


class EchoEnvironment:
    """Its baselines tell what they were asked."""

    spec = EnvironmentSpec(name="test:echo", summary="", daily_rate=1, data_length=10)

    async def open(self, index: int, seed: int) -> Episode:
        raise AssertionError("an endpoint opens no episode")

    async def baseline(
        self, kind: str, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        return f"{kind} index={index} seed={seed} turn={len(conversation)} draw={rng.randrange(1000)}"


class JumpingClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def ask_once(model: Model, settings: ClientSettings | None = None, **more: str) -> ChatReply:
    """Return the reply of one attempt with a client of its own."""
    async with ChatClient(settings) as client:
        return await client.chat(model, HELLO, **more)


async def failure_of(model: Model, settings: ClientSettings | None = None) -> ChatError:
    """Return the error of one attempt with a client of its own."""
    with pytest.raises(ChatError) as caught:
        await ask_once(model, settings)
    return caught.value
