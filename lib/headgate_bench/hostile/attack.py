"""An attack, what came of the attacks of one kind, and how others fare meanwhile."""

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
"""What a request raises that is turned away, or that nobody answers."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that an adversary does."""

    name: str  # what is tried, for people
    attempt: Callable[[], Awaitable[str]]  # does it; returns what got in, or an empty text when it was kept out


@dataclass(slots=True)
class Tally:
    """What came of the attacks of one kind."""

    kind: str  # of adversary
    tried: int = 0  # attacks
    got_in: dict[str, str] = field(default_factory=dict)  # name of an attack -> what got in
    # Share of others' requests that are answered in time while nobody attacks; None where none are sent.
    calm: float | None = None
    attacked: float | None = None  # the same during the attack

    @property
    def others(self) -> float:
        """Goodput of others during the attack, as a share of what it is without."""
        return 1.0 if self.calm is None or self.attacked is None else self.attacked / max(self.calm, 1e-9)

    async def of(self, attacks: Iterable[Attack], progress: Progress, at_once: int = 1) -> Tally:
        """Return this tally with these attacks tried, so many at once; one that ends in an error got in as well."""
        found = list(attacks)
        left = iter(enumerate(found))

        async def attacker() -> None:
            for number, attack in left:
                progress(number / len(found), f"{self.kind}: {attack.name}")
                self.tried += 1
                try:
                    what = await attack.attempt()
                except Exception as error:  # noqa: BLE001 - whatever an attack makes others raise, it got in
                    what = f"others were not answered: {type(error).__name__}: {error}"[:300]
                if what:
                    self.got_in[attack.name] = what

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(attacker())
        return self


@dataclass(frozen=True, slots=True)
class Ground:
    """What the attacks of one kind are made with."""

    kind: str  # of adversary
    folder: Path  # empty, for what the attacked parts write
    tries: int  # how many attacks are drawn at random, in rough measure: some kinds take more and some fewer
    siege_s: float  # how long others are served during an attack, and as long without
    rng: random.Random  # draws them
    progress: Progress  # is told

    async def tried(self, attacks: Iterable[Attack], at_once: int = 1) -> Tally:
        """Return what came of these attacks."""
        return await Tally(self.kind).of(attacks, self.progress, at_once)

    async def besieged(
        self, tally: Tally, ask: Callable[[], Awaitable[object]], siege: AbstractAsyncContextManager[None]
    ) -> Tally:
        """Return the tally with how others fare who ask twenty times a second, without and during a siege."""
        tally.calm = await answered_share(ask, self.siege_s, 20.0, 1.0)
        async with siege:
            tally.attacked = await answered_share(ask, self.siege_s, 20.0, 1.0)
        return tally


async def answered_share(ask: Callable[[], Awaitable[object]], seconds: float, per_s: float, within_s: float) -> float:
    """Return the share of requests that are answered in time, of those that others send at a fixed rate.

    `ask` sends one, and raises where the answer is none; none waits for another.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(number: int) -> bool:
        await asyncio.sleep(began + number / per_s - loop.time())
        try:
            # From when it was due: a loop that stands still sends late, which is late for whoever waits for the answer.
            async with asyncio.timeout_at(began + number / per_s + within_s):
                await ask()
        except FAILURES:
            return False
        return True

    answered = await asyncio.gather(*(one(number) for number in range(round(seconds * per_s))))
    return sum(answered) / len(answered)


@asynccontextmanager
async def attackers(siege: Sequence[Callable[[], Awaitable[object]]]) -> AsyncIterator[None]:
    """Keep attackers at it while the context is open: each begins again when it has been turned away."""

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
