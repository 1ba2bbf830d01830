"""What the harness costs per turn of an episode, in process and apart, beside calling the environment directly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final

from headgate.bench.echo_environment import ROUNDS, Echo
from headgate.core import ChatReply, Message
from headgate.environments import GROUP, Environment, Registry, converse

_REPLY: Final = "word " * 60
"""As long as a short answer of a model."""

_APART: Final = EntryPoint("bench:echo", "headgate.bench.echo_environment:echo_apart", GROUP)


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """Processor time of this process per turn, in milliseconds.

    Attributes:
        direct: the environment alone.
        in_process: with the episode loop around it.
        apart: likewise, with the environment in a process of its own, whose time is not counted.
    """

    direct: float
    in_process: float
    apart: float


async def turn_costs(turns: int) -> TurnCosts:
    """Return the costs over so many turns each.

    Args:
        turns: rounded up to whole episodes.
    """
    episodes = -(-turns // ROUNDS)
    here, apart = Echo(runs_apart=False), Registry(lambda: [_APART]).environment("bench:echo")
    await _conversed(apart, 1)  # the start of its process is no turn
    return TurnCosts(
        await _cpu_ms(_called(here, episodes), episodes),
        await _cpu_ms(_conversed(here, episodes), episodes),
        await _cpu_ms(_conversed(apart, episodes), episodes),
    )


async def _cpu_ms(work: Awaitable[None], episodes: int) -> float:
    began = time.process_time()
    await work
    return 1e3 * (time.process_time() - began) / (episodes * ROUNDS)


async def _called(environment: Environment, episodes: int) -> None:
    for index in range(episodes):
        episode = await environment.open(index, index)
        for _ in range(ROUNDS):
            await episode.answer(_REPLY)
        await episode.close()


async def _conversed(environment: Environment, episodes: int) -> None:
    async def chat(messages: Sequence[Message]) -> ChatReply:
        del messages
        await asyncio.sleep(0)
        return ChatReply(_REPLY)

    for index in range(episodes):
        result = await converse(environment, index, index, chat)
        assert result.score == 1.0, result.error
