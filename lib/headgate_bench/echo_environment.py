"""An environment that does next to nothing, so that the cost of playing it is the harness's."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.core import Message, Model
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, Score

_STATM: Final = Path("/proc/self/statm")


def fleet(count: int, base_url: str = "http://127.0.0.1:1/v1", *, name: str = "simulated") -> list[Model]:
    """Return `count` models behind one address; scripted chats never call it."""
    return [Model(f"{name}-{number:03d}", base_url=base_url, uid=number) for number in range(count)]


def free_names(count: int) -> list[str]:
    """Return `count` names of environments that cost nothing."""
    return [f"bench:free-{number:02d}" for number in range(count)]


def memory_bytes() -> int:
    """Return the resident memory of this process, or its peak so far where the system does not report the former."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGE_SIZE")


ROUNDS = 50
"""Turns per episode, as many as in a long game."""

BLOCK = "block"
"""Message at which the echo blocks for some seconds."""


class EchoEpisode:
    """Repeats every reply until its rounds are over."""

    opening = (Message("user", "Say something."),)

    def __init__(self, turn_s: float = 0.0) -> None:
        self._rounds = 0
        self._turn_s = turn_s

    async def answer(self, reply: str) -> Continue | Score:
        """Return the reply, or a score in the last round."""
        self._rounds += 1
        if reply == BLOCK:
            time.sleep(5.0)  # noqa: ASYNC251 - simulates a package that blocks its process
        if self._turn_s:
            time.sleep(self._turn_s)  # noqa: ASYNC251 - simulates a package that computes, without using a processor
        if self._rounds >= ROUNDS:
            return Score(1.0, success=True, why="over")
        return Continue((Message("user", reply),))

    async def close(self) -> None:
        """Free nothing."""


class Echo:
    """The echo environment; implements `Environment` and runs apart if it is registered to."""

    def __init__(self, *, runs_apart: bool, name: str = "bench:echo", turn_s: float = 0.0) -> None:
        self._turn_s = turn_s
        self._spec = EnvironmentSpec(
            name=name,
            summary="Echo",
            daily_rate=1.0,
            data_length=1_000_000,
            max_rounds=ROUNDS,
            runs_apart=runs_apart,
        )

    @property
    def spec(self) -> EnvironmentSpec:
        """The environment's description."""
        return self._spec

    async def open(self, index: int, seed: int) -> EchoEpisode:
        """Begin an episode."""
        del index, seed
        return EchoEpisode(self._turn_s)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a word."""
        del index, seed, conversation, rng
        return kind


def echo_apart() -> Echo:
    """Return the echo that runs in its own process."""
    return Echo(runs_apart=True)


TURN_S: Final = 0.05
"""Duration of a turn that keeps its process busy, as if it computed."""


def busy_apart() -> Echo:
    """Return the echo whose turns keep its own process busy for `TURN_S`."""
    return Echo(runs_apart=True, name="bench:busy", turn_s=TURN_S)
