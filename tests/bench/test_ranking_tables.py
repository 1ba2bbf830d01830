"""Tables of the ranking benchmark, and the rival that chooses tasks."""

from __future__ import annotations

import asyncio

import numpy as np

from headgate_bench.ranking_tables import Played, Setting, Table, faq, strict, tokens_by_rates, told_the_truth

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
    table = Setting("of models far apart", 8, 1_500, spread=1.5).table(np.random.default_rng(3))
    plain, shared = (tokens_by_rates(table, 0.05, uniform=uniform) for uniform in (1.0, 0.25))
    assert len(plain) == len(shared) == table.compared
    assert plain == sorted(plain)
    assert shared[-1] < plain[-1] <= table.tokens.sum()
