"""Tables of the ranking benchmark, and the rival that chooses tasks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from headgate_bench import ranking_tables
from headgate_bench.ranking_tables import (
    Played,
    Recorded,
    Setting,
    Table,
    faq,
    sequential,
    strict,
    tokens_by_rates,
    told_the_truth,
)
from tests.bench.tiny import bench

NEW = Setting("a new one", 13, 400, known=12)


def test_faq_ranks_a_new_model_from_a_part_of_the_tasks_and_pays_for_each_once() -> None:
    wrong = 0
    for seed in range(5):
        table = NEW.table(np.random.default_rng(seed))
        taken = np.full(13, 150)
        found = faq(table, 0.1, taken)
        assert found.pairs == 12
        assert 0 < found.cells[12] <= 150
        assert found.share < 0.6
        wrong += found.wrong
    assert wrong <= 3


def test_played_models_have_scores_between_those_of_the_weakest_and_the_strongest_baseline() -> None:
    played = asyncio.run(Played.of(["affine:sat-hard"], 12))
    weakest, greedy, solver = played.scores.mean(axis=(1, 2))
    assert weakest <= greedy <= solver == 1
    table = played.table(np.random.default_rng(0))
    assert table.scores.shape == (8, 12)
    means = table.scores.mean(axis=1)
    assert weakest <= means.min() < means.max() <= solver


def test_one_who_knows_takes_as_much_evidence_of_a_sample_without_replacement_as_one_pair_needs() -> None:
    apart = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]).repeat(100, axis=1)  # 0.5 apart, variance 0.25
    table = Table(apart, np.ones_like(apart))
    times = 2 * np.log(20) * 0.25 / (400 * 0.5**2)
    found = told_the_truth(table, 0.05, np.zeros(0, dtype=np.int64))
    assert found.cells.tolist() == [np.ceil(400 * times / (1 + times))] * 2
    assert found.share == found.cells[0] / 400
    assert strict(table, 0.05, found.cells).share > found.share
    known = Table(np.vstack([apart, apart[1]]), np.ones((3, 400)), known=2)
    assert told_the_truth(known, 0.05, found.cells).cells.tolist() == [0, 0, 0], "it is what a known one is"


def test_samples_of_a_day_that_are_shared_by_what_they_rank_rank_all_pairs_for_fewer_tokens() -> None:
    table = Setting("of models far apart", 6, 800, spread=1.5).table(np.random.default_rng(3))
    plain, shared = (tokens_by_rates(table, 0.05, uniform=uniform) for uniform in (1.0, 0.25))
    assert len(plain) == len(shared) == table.compared
    assert plain == sorted(plain)
    assert shared[-1] < plain[-1] <= table.tokens.sum()


def test_each_small_model_has_each_recorded_task_once_with_a_score() -> None:
    frame = pl.read_parquet(Path(ranking_tables.__file__).with_name("small_models.parquet"))
    tasks = frame.group_by("model", "environment").agg(pl.col("task").sort())
    models, environments = tasks["model"].unique(), tasks["environment"].unique()
    assert tasks.height == len(models) * len(environments)
    assert {tuple(row) for row in tasks["task"]} == {tuple(range(frame.height // tasks.height))}
    assert frame["score"].is_between(0, 1).all()
    assert frame["tokens"].min() > 0
    assert {name.partition("-")[0] for name in models} == {"smollm2", "gemma3"}
    means = frame.group_by("model").agg(pl.col("score").mean())["score"]
    assert 0 < means.min() < means.max() < 1


def test_tables_of_small_models_differ_in_the_order_of_tasks_alone() -> None:
    recorded = Recorded.read()
    first, second = (recorded.table(np.random.default_rng(seed)) for seed in (0, 1))
    assert first.scores.shape == (recorded.scores.shape[0], recorded.scores.shape[2])
    assert (first.scores != second.scores).any()
    assert np.allclose(first.scores.mean(axis=1), recorded.scores.mean(axis=(1, 2)))
    assert np.array_equal(np.sort(first.tokens), np.sort(second.tokens))
    found = sequential(first, 0.05, np.zeros(0, dtype=np.int64))
    assert found.pairs == first.compared
    assert 0 < found.share <= 1


def test_the_benchmark_shows_what_ranking_small_models_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = "small language models"
    _, printed = bench(
        capsys, tmp_path, "ranking", f"kinds={name}", "errors=1", "environments=affine:sat-hard", "tasks=8"
    )
    artifact = json.loads(Path(printed["artifact"]).read_text())
    assert artifact["notes"][0].startswith(f"{name}: ")
    assert 0 < artifact["ratios"][f"tokens, sequential ranking: {name}"]["median"] <= 1
