"""A large sample store, made at once: many models in many environments over some weeks, as compaction leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from headgate.storage.batches import encoded_parts
from headgate.storage.manifest import Manifest, manifest_bytes
from headgate.storage.objects import ObjectStore, manifest_key
from headgate.storage.schema import FRAME_SCHEMA, validated

_DAY_S: Final = 86_400.0
_START_S: Final = 1_767_225_600.0
_INDICES: Final = 200
_WORDS: Final = ("gate", "water", "level", "lock", "channel", "weir", "sluice", "mill", "river", "bank", "stone")


@dataclass(frozen=True, slots=True)
class LargeStore:
    """How much is in it.

    Attributes:
        words: of each answer.
    """

    samples: int
    models: int
    environments: int
    days: int
    words: int = 60

    def write(self, objects: ObjectStore, seed: int = 0) -> int:
        """Write the store and return its bytes; each day is a batch, with a part for each environment."""
        size_bytes, first = 0, 0
        for day in range(self.days):
            rows = self.samples * (day + 1) // self.days - first
            frame = self._day(day, first, rows, seed)
            first += rows
            batch_id = f"day-{day:04d}"
            parts = []
            for part, data in encoded_parts(frame, batch_id):
                objects.put_many([(part.path, data)])
                parts.append(part)
                size_bytes += len(data)
            objects.create(manifest_key(batch_id), manifest_bytes(Manifest(batch_id, tuple(parts))))
        return size_bytes

    def _day(self, day: int, first: int, rows: int, seed: int) -> pl.DataFrame:
        """Return the samples of one day, which are valid: some fail, and models differ in what they can."""
        random = np.random.default_rng([seed, day])
        numbers = np.arange(first, first + rows)
        model = random.integers(0, self.models, rows)
        environment = random.integers(0, self.environments, rows)
        index = random.integers(0, _INDICES, rows)
        skill = 0.2 + 0.6 * model / max(1, self.models - 1)
        score = np.where(random.random(rows) < skill, 1.0, np.round(random.random(rows) * 0.9, 3))
        failed = random.random(rows) < 0.02
        finished = _START_S + _DAY_S * day + np.sort(random.random(rows)) * (_DAY_S - 1)
        latency = random.gamma(2.0, 2.0, rows)
        said = [" ".join(words) for words in random.choice(_WORDS, (rows, self.words))]
        made = {
            "task_id": [f"t-{number:024x}" for number in numbers],
            "campaign": ["large"] * rows,
            "model": [f"large/model-{number:04d}@main" for number in model],
            "environment": [f"large:env-{number:02d}" for number in environment],
            "sequence": numbers,
            "index": index,
            "seed": index,
            "stage": ["sample"] * rows,
            "score": [None if bad else value for bad, value in zip(failed, score.tolist(), strict=True)],
            "success": (score == 1.0) & ~failed,
            "why": ["all clauses hold" if value == 1.0 else "clause 3 does not hold" for value in score],
            "error_kind": ["provider_timeout" if bad else None for bad in failed],
            "error": ["no answer within 60 s" if bad else None for bad in failed],
            "started_at": finished - latency,
            "finished_at": finished,
            "latency_s": latency,
            "queue_wait_s": random.random(rows),
            "request_wait_s": random.random(rows) / 10,
            "prompt_tokens": random.integers(100, 2_000, rows),
            "completion_tokens": random.integers(20, 800, rows),
            "turns": [1] * rows,
            "attempts": random.integers(1, 4, rows),
            "trace_id": [f"{number + 1:032x}" for number in numbers],
            "conversation": [
                f'[["user","Task {task} of the day."],["assistant","{answer} {number}"]]'
                for task, answer, number in zip(index, said, numbers, strict=True)
            ],
        }
        return validated(pl.DataFrame(made, schema=FRAME_SCHEMA)).good
