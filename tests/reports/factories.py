"""Samples to report on, from a seeded generator: a strong, a weak and a failing model in two environments."""

from __future__ import annotations

import random
from typing import Any

import polars as pl

START = 1_763_600_000.0
SCHEMA = {
    "task_id": pl.String,
    "campaign": pl.String,
    "model": pl.String,
    "environment": pl.String,
    "sequence": pl.Int64,
    "index": pl.Int64,
    "seed": pl.Int64,
    "stage": pl.String,
    "score": pl.Float64,
    "success": pl.Boolean,
    "why": pl.String,
    "error_kind": pl.String,
    "error": pl.String,
    "started_at": pl.Float64,
    "finished_at": pl.Float64,
    "latency_s": pl.Float64,
    "queue_wait_s": pl.Float64,
    "request_wait_s": pl.Float64,
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "turns": pl.Int64,
    "attempts": pl.Int64,
    "trace_id": pl.String,
    "conversation": pl.String,
    "cost_micro": pl.Int64,
    "judge_cost_micro": pl.Int64,
}


def row(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return one scored sample."""
    made = {
        "task_id": f"t-{number}",
        "campaign": "main",
        "model": "acme/strong@main",
        "environment": "affine:sat",
        "sequence": number,
        "index": number,
        "seed": number,
        "stage": "sample",
        "score": 1.0,
        "success": True,
        "why": "",
        "error_kind": None,
        "error": None,
        "started_at": START + number,
        "finished_at": START + number + 2,
        "latency_s": 2.0,
        "queue_wait_s": 0.0,
        "request_wait_s": 0.0,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "turns": 1,
        "attempts": 1,
        "trace_id": f"{number:032x}",
        "conversation": "",
        "cost_micro": None,
        "judge_cost_micro": None,
    }
    return made | changes


def lost(number: int, kind: str = "provider_failure", error: str = "HTTP 503", **changes: Any) -> dict[str, Any]:
    """Return one sample without a score."""
    return row(number, score=None, success=False, error_kind=kind, error=error, **changes)


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """Return the samples as the store gives them."""
    return pl.DataFrame(list(rows), schema=SCHEMA)


def campaign(models: int = 3, environments: int = 2, each: int = 20) -> pl.DataFrame:
    """Return a small campaign; every third model fails often."""
    rng = random.Random(7)
    rows = []
    for model in range(models):
        for environment in range(environments):
            for _ in range(each):
                number = len(rows)
                latency = rng.lognormvariate(1, 0.5)
                at = START + 60 * number
                common = {
                    "model": f"acme/model-{model}@main",
                    "environment": f"test:env-{environment}",
                    "started_at": at,
                    "finished_at": at + latency,
                    "latency_s": latency,
                }
                if model % 3 == 2 and rng.random() < 0.3:
                    rows.append(lost(number, **common))
                else:
                    score = float(rng.random() < 0.5) if environment == 0 else round(rng.random(), 3)
                    rows.append(row(number, score=score, success=score > 0.5, **common))
    return frame(*rows)
