"""Samples for the tests of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.core import Sample, task_id_of

START = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC
DAY = 86_400.0


def sample(
    sequence: int = 0,
    *,
    model: str = "org/a@main",
    environment: str = "affine:sat",
    campaign: str = "main",
    at: float | None = None,
    **changes: Any,
) -> Sample:
    """Return a scored sample that ended at `at`, or a second per sequence after `START`."""
    finished_at = START + sequence if at is None else at
    made = Sample(
        task_id=task_id_of(model, environment, sequence, "sample", campaign),
        campaign=campaign,
        model=model,
        environment=environment,
        sequence=sequence,
        index=sequence % 7,
        seed=11,
        stage="sample",
        score=float(sequence % 2),
        success=bool(sequence % 2),
        why="because",
        error_kind=None,
        error=None,
        started_at=finished_at - 2.5,
        finished_at=finished_at,
        latency_s=2.5,
        queue_wait_s=0.25,
        request_wait_s=0.0,
        prompt_tokens=10,
        completion_tokens=3,
        turns=1,
        attempts=1,
        trace_id=f"{sequence:032x}",
        conversation='[{"role":"user","content":"2 + 2?"}]',
    )
    return replace(made, **changes)


def many(count: int, *, first: int = 0, **same: Any) -> list[Sample]:
    """Return samples of consecutive sequences."""
    return [sample(first + number, **same) for number in range(count)]


def failed(sequence: int, kind: str = "provider_failure", **changes: Any) -> Sample:
    """Return a sample without a score."""
    nothing: dict[str, Any] = {"score": None, "success": False, "error_kind": kind, "error": "HTTP 503", "why": ""}
    return sample(sequence, **(nothing | changes))
