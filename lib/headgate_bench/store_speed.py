"""The cost of writing to the sample store on this machine: rows per second, and CPU time per sample."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headgate.core import Sample, seed_of, task_id_of, unit_hash
from headgate.storage import FolderObjects, frame_of, put_batch, validated


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Measured figures; rates are medians over the runs.

    Attributes:
        frame_rows_per_s: conversion of samples to columns.
        validated_rows_per_s: validation of the large frame with the pandera schema.
        stored_rows_per_s: validation and writing of Parquet and manifest, flushed to disk: one batch of all rows.
        batch_environments: environments in a small batch, each with its own part.
        batch_ms: wall time to store a small batch.
        batch_cpu_us_per_sample: CPU time of all threads, per sample of a small batch.
    """

    rows: int
    frame_rows_per_s: float
    validated_rows_per_s: float
    stored_rows_per_s: float
    batch_rows: int
    batch_environments: int
    batch_ms: float
    batch_cpu_us_per_sample: float


def measure_store(
    *, rows: int = 200_000, batch_rows: int = 300, environments: int = 8, runs: int = 5, folder: Path | None = None
) -> StoreFigures:
    """Return the figures, measured in a temporary folder below `folder` (default: the system's own)."""
    samples = example_samples(rows, environments)
    frame = frame_of(samples)
    with tempfile.TemporaryDirectory(dir=folder) as root:
        objects = FolderObjects(Path(root))
        whole = [f"whole-{number}" for number in range(runs)]
        framing_s = _seconds(lambda: frame_of(samples), runs)
        checking_s = _seconds(lambda: validated(frame), runs)
        storing_s = _seconds(lambda: put_batch(objects, whole.pop(), samples), runs)
        batches = _slices(samples, batch_rows, at_most=20 * runs)
        put_batch(objects, "warm-up", samples[:batch_rows])
        before = time.process_time()
        batch_s = _seconds(lambda: put_batch(objects, *next(batches)), 20 * runs)
        cpu_s = (time.process_time() - before) / (20 * runs)
    return StoreFigures(
        rows=rows,
        frame_rows_per_s=rows / framing_s,
        validated_rows_per_s=rows / checking_s,
        stored_rows_per_s=rows / storing_s,
        batch_rows=batch_rows,
        batch_environments=environments,
        batch_ms=1_000 * batch_s,
        batch_cpu_us_per_sample=1e6 * cpu_s / batch_rows,
    )


def example_samples(
    rows: int, environments: int, *, models: int = 50, start_s: float = 1_767_225_600.0
) -> list[Sample]:
    """Return generated samples of realistic size, the same on every call."""
    return [_example(number, f"example:e{number % environments}", models, start_s) for number in range(rows)]


def _example(number: int, environment: str, models: int, start_s: float) -> Sample:
    model = f"example/model-{number % models}@main"
    is_success = unit_hash("score", str(number)) < 0.6
    task_id = task_id_of(model, environment, number, "sample", "measure")
    words = " ".join(f"{unit_hash(task_id, str(word)):.6f}" for word in range(40))
    return Sample(
        task_id=task_id,
        campaign="measure",
        model=model,
        environment=environment,
        sequence=number,
        index=number % 200,
        seed=seed_of(environment, number % 200),
        stage="sample",
        score=1.0 if is_success else 0.0,
        success=is_success,
        why="all clauses hold" if is_success else "clause 3 does not hold",
        error_kind=None,
        error=None,
        started_at=start_s + number * 0.4,
        finished_at=start_s + number * 0.4 + 3.0,
        latency_s=3.0,
        queue_wait_s=0.1,
        request_wait_s=0.0,
        prompt_tokens=700,
        completion_tokens=120,
        turns=1,
        attempts=1,
        trace_id=f"{number:032x}",
        conversation=f'[{{"role":"user","content":"{words}"}}]',
    )


def _slices(samples: Sequence[Sample], size: int, *, at_most: int) -> Iterator[tuple[str, Sequence[Sample]]]:
    for number in range(at_most):
        start = number * size % max(1, len(samples) - size)
        yield f"batch-{number}", samples[start : start + size]


def _seconds(act: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return median(taken)
