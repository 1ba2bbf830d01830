"""A large generated sample store: many models in many environments over some weeks, with a part for each day."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.core import Sample
from headgate.storage import SampleStore

DAY_S: Final = 86_400.0
START_S: Final = 1_767_225_600.0
_INDICES: Final = 200
_WORDS: Final = ("gate", "water", "level", "lock", "channel", "weir", "sluice", "mill", "river", "bank", "stone")
_ANSWERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class LargeStore:
    """Size of the store. Some samples fail, and models differ in skill."""

    samples: int
    models: int
    environments: int
    days: int

    async def write(self, store: SampleStore, seed: int = 0) -> None:
        """Write the store: each day is a batch with a part for each environment, like a store after compaction."""
        for day in range(self.days):
            await store.put_batch(f"day-{day:04d}", list(self.day(day, seed)))

    def day(self, day: int, seed: int = 0) -> Iterator[Sample]:
        """Yield the samples of one day, ordered by time."""
        first, end = (self.samples * number // self.days for number in (day, day + 1))
        rows, random = end - first, np.random.default_rng([seed, day])
        answers = [" ".join(words) for words in random.choice(_WORDS, (_ANSWERS, 60))]
        model = random.integers(0, self.models, rows)
        skill = 0.2 + 0.6 * model / max(1, self.models - 1)
        score = np.where(random.random(rows) < skill, 1.0, np.round(random.random(rows) * 0.9, 3))
        columns: list[Any] = [
            model, random.integers(0, self.environments, rows), random.integers(0, _INDICES, rows), score,
            random.random(rows) < 0.02, START_S + DAY_S * day + np.sort(random.random(rows)) * (DAY_S - 1),
            random.gamma(2.0, 2.0, rows), random.integers(100, 2_000, rows), random.integers(20, 800, rows),
        ]  # fmt: skip
        for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True), first):
            yield _sample(number, answers[number % _ANSWERS], *row)


def _sample(
    number: int, answer: str, model: int, environment: int, index: int, score: float, has_failed: bool, at: float,
    latency_s: float, prompt_tokens: int, completion_tokens: int,
) -> Sample:  # fmt: skip
    return Sample(
        task_id=f"t-{number * 2_654_435_761 % 2**96:024x}",
        campaign="large",
        model=f"large/model-{model:04d}@main",
        environment=f"large:env-{environment:02d}",
        sequence=number,
        index=index,
        seed=index,
        stage="sample",
        score=None if has_failed else score,
        success=score == 1.0 and not has_failed,
        why="" if has_failed else "all clauses hold" if score == 1.0 else f"clause {number % 7} does not hold",
        error_kind="provider_timeout" if has_failed else None,
        error="no answer within 60 s" if has_failed else None,
        started_at=at - latency_s,
        finished_at=at,
        latency_s=latency_s,
        queue_wait_s=0.2,
        request_wait_s=0.1,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        turns=1,
        attempts=1,
        trace_id=f"{number + 1:032x}",
        conversation=f'[["user","Task {index} of the day."],["assistant","{answer} {number}"]]',
    )
