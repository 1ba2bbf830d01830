"""Test doubles for simulations and users' own tests: scripted models, a store in memory, a trivial environment."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.core import DAY_S, Chat, ChatError, ChatReply, Clock, ErrorKind, Message, Model, Sample, Task, errors
from headgate.core.events import Emit
from headgate.environments import BaselineKind, Continue, Environment, EnvironmentSpec, Episode, Score
from headgate.storage import History, PairHistory, RecentSample, StoredBatch

Script = Callable[[Model, float], ErrorKind | None]
"""Returns the failure of a model at a time (seconds of the clock); None for none."""


def never_fails(_model: Model, _at: float) -> ErrorKind | None:
    """Return no failure."""
    return None


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Log-normal service times: mean seconds, and coefficient of variation (0 for constant)."""

    mean_s: float = 1.0
    cv: float = 0.0

    def draw(self, rng: random.Random) -> float:
        """Return one service time in seconds."""
        if self.cv == 0:
            return self.mean_s
        sigma2 = math.log(1 + self.cv**2)
        return rng.lognormvariate(math.log(self.mean_s) - sigma2 / 2, math.sqrt(sigma2))


class ScriptedChats:
    """Models that answer `right` or `wrong` after a service time, and fail by a script. Seeded.

    `peak` is the highest number of requests in service at once.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        service: ServiceTime | None = None,
        script: Script = never_fails,
        skill: float = 0.5,
        seed: int = 0,
    ) -> None:
        self._clock = clock
        self._service = service or ServiceTime()
        self._script = script
        self._skill = skill
        self._rng = random.Random(seed)
        self.in_service = 0
        self.peak = 0
        self.served = 0

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return the scripted model's side of one episode."""

        async def answer(messages: Sequence[Message]) -> ChatReply:  # noqa: ARG001
            return await self.reply(model)

        return answer

    async def reply(self, model: Model) -> ChatReply:
        """Return a reply after its service time.

        Raises:
            ChatError: the script returns a failure.
        """
        self.in_service += 1
        self.peak = max(self.peak, self.in_service)
        try:
            seconds = self._service.draw(self._rng)
            await self._clock.sleep(seconds)
        finally:
            self.in_service -= 1
        self.served += 1
        failure = self._script(model, self._clock.monotonic())
        if failure is not None:
            raise ChatError(failure, f"scripted {failure.value}")
        text = "right" if self._rng.random() < self._skill else "wrong"
        return ChatReply(text, prompt_tokens=8, completion_tokens=1, latency_s=seconds)


class _FreeEpisode:
    def __init__(self, index: int) -> None:
        self.opening = (Message("user", f"Task {index}: answer right or wrong."),)

    async def answer(self, reply: str) -> Continue | Score:
        is_right = reply == "right"
        return Score(float(is_right), is_right, f"the answer is {reply[:40]!r}", reply)

    async def close(self) -> None:
        return


class FreeEnvironment:
    """An environment that needs no computation: one question, scored 1 for the answer `right`."""

    def __init__(self, name: str, daily_rate: float = 100.0, data_length: int = 1_000) -> None:
        self.spec = EnvironmentSpec(name, "costs nothing", daily_rate, data_length, tasks_are_drawn=True)

    async def open(self, index: int, seed: int) -> Episode:
        """Return task `index`."""
        return _FreeEpisode(index)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return `right` for the solver, a random answer for the others."""
        return "right" if kind == "solver" else rng.choice(("right", "wrong"))


def free_environments(rates: dict[str, float], data_length: int = 1_000) -> dict[str, Environment]:
    """Return one `FreeEnvironment` per name and daily rate."""
    return {name: FreeEnvironment(name, rate, data_length) for name, rate in rates.items()}


class MemoryStore:
    """A store that keeps each sample once, in a list, and fails while `is_down`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.is_down = False
        self._batches: dict[str, StoredBatch] = {}

    async def put_batch(self, batch_id: str, samples: Sequence[Sample]) -> StoredBatch:
        """Store the samples of a batch, if it is new."""
        await asyncio.sleep(0)
        if self.is_down:
            raise errors.StoreError("the store is down")
        if batch_id not in self._batches:
            self.samples.extend(samples)
            self._batches[batch_id] = StoredBatch(batch_id, len(samples), 1)
        return self._batches[batch_id]

    async def history(self, now: float) -> History:
        """Return the history of the stored samples."""
        pairs: dict[tuple[str, str], list[Sample]] = {}
        for sample in self.samples:
            pairs.setdefault((sample.model, sample.environment), []).append(sample)
        return History(now, {key: _pair_history(*key, samples, now) for key, samples in pairs.items()}, ())

    async def task_scores(self, campaign: str) -> list[tuple[str, str, int, float]]:
        """Return model, environment, sequence and score of a campaign's scored samples, by sequence."""
        kept = sorted((s for s in self.samples if s.campaign == campaign), key=lambda s: s.sequence)
        return [(s.model, s.environment, s.sequence, s.score) for s in kept if s.score is not None]

    async def to_resample(self, campaign: str, *, every: bool = False) -> list[tuple[str, str, int, str]]:
        """Return nothing, as no sample is ever invalidated here."""
        del campaign, every
        return []

    async def invalid(self, campaign: str, since: float) -> list[tuple[str, str, float, float, int]]:
        """Return nothing, likewise."""
        del campaign, since
        return []

    async def recent(self, campaign: str, since: float, most: int) -> list[RecentSample]:
        """Return up to `most` of the newest samples of a campaign that ended since then, ordered by their end."""
        kept = [s for s in self.samples if s.campaign == campaign and s.finished_at >= since]
        rows = [RecentSample(s.model, s.environment, s.index, s.score, s.finished_at, s.served_by) for s in kept]
        return sorted(rows, key=lambda row: row.finished_at)[-most:]

    async def spent(self, since: float) -> list[tuple[str, str, float, int, int, int, int | None]]:
        """Return the usage of each stored sample that ended since then."""
        return [
            (s.task_id, s.model, s.finished_at, s.prompt_tokens, s.completion_tokens, s.attempts, s.cost_micro)
            for s in self.samples
            if s.finished_at >= since
        ]


def _pair_history(model: str, environment: str, samples: Sequence[Sample], now: float) -> PairHistory:
    minutes = Counter(int(s.finished_at // 60) for s in samples if s.is_scored and s.finished_at > now - DAY_S)
    last = max(s.finished_at for s in samples)
    return PairHistory(
        model=model,
        environment=environment,
        scored_by_minute=dict(minutes),
        last_finished_at=last if last >= now - 7_200 else None,
        next_sequence=max(s.sequence for s in samples) + 1,
        scored=sum(s.is_scored for s in samples),
    )
