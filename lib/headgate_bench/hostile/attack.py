"""An attack, the outcome of the attacks of one kind, and the service that others get meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from headgate.core import ChatError
from headgate.core.errors import HeadgateError
from headgate_bench.definition import Progress

FAILURES: Final = (TimeoutError, OSError, HeadgateError, ChatError, aiohttp.ClientError)
"""Exceptions of a request that is refused or not answered."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack by an adversary."""

    name: str  # description of the attack
    attempt: Callable[[], Awaitable[str]]  # runs it; returns what got in, or "" if it was repelled


@dataclass(slots=True)
class Tally:
    """The outcome of the attacks of one kind."""

    kind: str  # kind of adversary
    tried: int = 0  # number of attacks
    got_in: dict[str, str] = field(default_factory=dict)  # name of an attack -> what got in
    # Share of others' requests answered in time without an attack; None if none are sent.
    calm: float | None = None
    attacked: float | None = None  # the same share during the attack

    @property
    def others(self) -> float:
        """Goodput of others during the attack, relative to that without one."""
        return 1.0 if self.calm is None or self.attacked is None else self.attacked / max(self.calm, 1e-9)

    async def of(self, attacks: Iterable[Attack], progress: Progress, at_once: int = 1) -> Tally:
        """Try these attacks, `at_once` in parallel, and return this tally; one that ends in an error got in, too."""
        found = list(attacks)
        left = iter(enumerate(found))

        async def attacker() -> None:
            for number, attack in left:
                progress(number / len(found), f"{self.kind}: {attack.name}")
                self.tried += 1
                try:
                    what = await attack.attempt()
                except Exception as error:  # noqa: BLE001 - an attack that makes others fail got in
                    what = f"others were not answered: {type(error).__name__}: {error}"[:300]
                if what:
                    self.got_in[attack.name] = what

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(attacker())
        return self


@dataclass(frozen=True, slots=True)
class Ground:
    """The inputs of the attacks of one kind."""

    kind: str  # kind of adversary
    folder: Path  # empty folder for the files of the attacked parts
    tries: int  # approximate number of random attacks: some kinds make more, some fewer
    siege_s: float  # how long others are served during an attack, and for comparison without one
    rng: random.Random  # draws the attacks
    progress: Progress  # called with the progress

    async def tried(self, attacks: Iterable[Attack], at_once: int = 1) -> Tally:
        """Return the outcome of these attacks."""
        return await Tally(self.kind).of(attacks, self.progress, at_once)

    async def besieged(
        self, tally: Tally, ask: Callable[[], Awaitable[object]], siege: AbstractAsyncContextManager[None]
    ) -> Tally:
        """Return the tally with the service of others, who ask twenty times a second, without and during a siege."""
        tally.calm = await answered_share(ask, self.siege_s, 20.0, 1.0)
        async with siege:
            tally.attacked = await answered_share(ask, self.siege_s, 20.0, 1.0)
        return tally


async def answered_share(ask: Callable[[], Awaitable[object]], seconds: float, per_s: float, within_s: float) -> float:
    """Return the share of others' requests, sent at a fixed rate, that are answered in time.

    `ask` sends one request, and raises if it is not answered; requests do not wait for each other.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(number: int) -> bool:
        await asyncio.sleep(began + number / per_s - loop.time())
        try:
            # Counted from when it was due: if the loop is blocked and sends late, the answer is late, too.
            async with asyncio.timeout_at(began + number / per_s + within_s):
                await ask()
        except FAILURES:
            return False
        return True

    answered = await asyncio.gather(*(one(number) for number in range(round(seconds * per_s))))
    return sum(answered) / len(answered)


@asynccontextmanager
async def attackers(siege: Sequence[Callable[[], Awaitable[object]]]) -> AsyncIterator[None]:
    """Keep attackers running while the context is open: each starts again after it has been repelled."""

    async def attacker(attempt: Callable[[], Awaitable[object]]) -> None:
        while True:
            with suppress(*FAILURES):
                await attempt()
            await asyncio.sleep(0.01)

    running = [asyncio.create_task(attacker(attempt)) for attempt in siege]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
