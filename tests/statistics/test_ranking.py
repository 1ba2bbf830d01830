"""Verdicts on two models before all tasks are taken: right as often as they say, whoever looks and whenever."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from headgate.core.errors import InvalidInputError
from headgate.statistics import PairDecision, PairwiseRanking

Floats = NDArray[np.float64]
INDIFFERENCE = 0.05


def drawn(rng: np.random.Generator, abilities: Iterable[float], rows: int) -> Floats:
    """Return scores of 0 and 1 of models with these abilities; tasks differ in difficulty."""
    chances = 1 / (1 + np.exp(rng.normal(0, 1.5, rows) - np.array(list(abilities))[:, None]))
    scores: Floats = (rng.random(chances.shape) < chances).astype(np.float64)
    return scores


def replayed(
    scores: Floats, known: int = 0, indifference: float = INDIFFERENCE, *, is_strict: bool = True
) -> tuple[PairwiseRanking, int]:
    """Return the ranking after it took what it wanted, row by row, and how many cells these were."""
    table, taken = np.full_like(scores, np.nan), 0
    table[:known] = scores[:known]
    ranking = PairwiseRanking(table, indifference, is_strict=is_strict)
    while cells := ranking.next(4 * len(scores)):
        for model, row in cells:
            ranking.add(model, row, scores[model, row])
        taken += len(cells)
        ranking.advance()
        ranking.validate()
    return ranking, taken


def is_wrong(decision: PairDecision, scores: Floats, indifference: float = INDIFFERENCE) -> bool:
    """Return whether the full table contradicts a verdict."""
    difference = scores[decision.first].mean() - scores[decision.second].mean()
    return {
        "better": difference < 0,
        "worse": difference > 0,
        "alike": abs(difference) > indifference + 1e-9,
        "not worse": difference < -indifference - 1e-9,
        "not better": difference > indifference + 1e-9,
        "open": True,
    }[decision.verdict]


@pytest.mark.parametrize(("known", "is_strict"), [(0, False), (0, True), (3, False)])
def test_any_wrong_verdict_is_rarer_than_1_table_in_20_and_intervals_hold_the_full_difference(
    known: int, is_strict: bool
) -> None:
    rng, wrong, held, told = np.random.default_rng(7), 0, 0, 0
    for _ in range(20):
        scores = drawn(rng, rng.normal(0, 0.3, 4), 120)  # most pairs are close: nothing to be sure of
        ranking, _ = replayed(scores, known, is_strict=is_strict)
        decisions = ranking.decisions()
        wrong += any(is_wrong(one, scores) for one in decisions)
        for one in decisions:
            difference = scores[one.first].mean() - scores[one.second].mean()
            held += one.low - 1e-3 <= difference <= one.high + 1e-3
            told += 1
    assert wrong <= 1
    assert held >= 0.95 * told


def test_models_far_apart_are_ranked_from_a_part_of_the_table() -> None:
    scores = drawn(np.random.default_rng(1), (-2, 0, 2), 400)
    ranking, taken = replayed(scores)
    assert taken < 0.4 * scores.size
    assert [one.verdict for one in ranking.decisions()] == ["worse", "worse", "worse"]
    assert all(0.95 <= one.certainty < 1 and one.difference < -0.2 for one in ranking.decisions())
    assert ranking.next(10) == []


def test_which_model_comes_first_is_known_before_it_is_known_whether_they_differ() -> None:
    scores = drawn(np.random.default_rng(8), (0.1, 0), 800)
    taken = {is_strict: replayed(scores, is_strict=is_strict)[1] for is_strict in (False, True)}
    (decision,) = replayed(scores, is_strict=False)[0].decisions()
    assert decision.verdict in {"not worse", "not better"}
    assert not is_wrong(decision, scores)
    assert taken[False] < 0.8 * taken[True]


def test_two_models_that_answer_alike_are_told_so_before_the_end() -> None:
    one = drawn(np.random.default_rng(2), (0.5,), 600)
    ranking, taken = replayed(np.vstack([one, one]))
    (decision,) = ranking.decisions()
    assert (decision.verdict, decision.difference) == ("alike", 0)
    assert taken < 0.5 * 2 * 600
    assert -0.1 < decision.low < 0 < decision.high < 0.1


def test_a_model_that_is_told_from_all_others_takes_no_more() -> None:
    scores = drawn(np.random.default_rng(3), (3, -1, -0.9), 500)
    table = np.full_like(scores, np.nan)
    table[:, :60] = scores[:, :60]
    ranking = PairwiseRanking(table, 0.02, is_strict=True)
    assert list(ranking.open_models()) == [False, True, True]
    assert {model for model, _ in ranking.next(50)} == {1, 2}
    ranking.drop(2)
    assert not ranking.open_models().any()
    assert [one.verdict for one in ranking.decisions()] == ["better", "better", "open"]


def test_what_the_remaining_tasks_cannot_turn_is_decided_for_certain() -> None:
    scores = np.vstack([np.ones(5), [0.0, 0.0, 0.0, 1.0, 1.0]])
    table = scores.copy()
    table[:, 3:] = np.nan
    (decision,) = PairwiseRanking(table, 0.5, is_strict=True).decisions()
    assert (decision.verdict, decision.certainty) == ("better", 1)


def test_a_complete_table_is_decided_as_it_is() -> None:
    scores = drawn(np.random.default_rng(4), (0, 0, 0.1, 1), 50)
    ranking = PairwiseRanking(scores, 0.02)
    assert ranking.open_pairs == 0
    assert not any(is_wrong(one, scores, 0.02) for one in ranking.decisions())
    assert all(one.high - one.low < 1e-3 for one in ranking.decisions() if one.rows == 50)


def test_known_models_predict_a_new_one_which_then_takes_fewer_tasks() -> None:
    alone = told = 0
    for seed in range(2):
        scores = drawn(np.random.default_rng(seed), (*np.linspace(-2, 2, 8), 0.25), 400)
        told += replayed(scores, 8)[1]
        ranking, _ = replayed(scores)
        alone += max(one.rows for one in ranking.decisions() if one.second == 8)
    assert told < 0.8 * alone


def test_a_new_model_unlike_all_known_ones_is_ranked_rightly() -> None:
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(10):
        scores = drawn(rng, (-1, 0, 1, 0.3), 150)
        scores[3] = 1 - scores[2] if rng.random() < 0.5 else rng.permutation(scores[2])
        ranking, _ = replayed(scores, 3)
        wrong += any(is_wrong(one, scores) for one in ranking.decisions())
    assert wrong == 0


def test_more_samples_are_foreseen_to_decide_more() -> None:
    scores = drawn(np.random.default_rng(6), (0, 0.5, 1), 600)
    table = np.full_like(scores, np.nan)
    table[:, :40] = scores[:, :40]
    ranking = PairwiseRanking(table, 0.02)
    assert ranking.open_pairs > 0
    few, many = (ranking.forecast(count, np.random.default_rng(0)) or 0.0 for count in (6, 900))
    assert few <= many <= ranking.open_pairs
    assert many > 0
    assert PairwiseRanking(np.full((2, 5), np.nan), 0.1).forecast(10, np.random.default_rng(0)) is None
    one_is_new = PairwiseRanking(np.vstack([table, np.full(600, np.nan)]), 0.02)
    assert one_is_new.forecast(900, np.random.default_rng(0)), "of pairs without the new model"


@pytest.mark.parametrize(
    ("shape", "indifference", "message"),
    [
        ((2, 5), 0.0, "indifference must be above 0 and below 1"),
        ((2, 5), 1.0, "indifference must be above 0 and below 1"),
        ((1, 5), 0.1, "two models or more"),
        ((2, 0), 0.1, "no task in common"),
    ],
)
def test_what_cannot_be_ranked_is_said_in_a_sentence(shape: tuple[int, int], indifference: float, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PairwiseRanking(np.full(shape, np.nan), indifference)


def test_a_score_off_the_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="must be in"):
        PairwiseRanking(np.full((2, 5), np.nan), 0.1).add(0, 0, 1.5)


def test_verdicts_about_tasks_without_end_are_right_hold_the_mean_and_only_get_stronger() -> None:
    rng, wrong, held, told, decided = np.random.default_rng(9), 0, 0, 0, 0
    for _ in range(20):
        difficulty, ability = rng.normal(0, 1.5, 5_000), rng.normal(0, 0.4, 3)
        chances = 1 / (1 + np.exp(difficulty - ability[:, None]))
        scores = (rng.random((3, 300)) < chances[:, rng.integers(5_000, size=300)]).astype(np.float64)
        chosen = [(0, 1), (1, 2)]
        ranking = PairwiseRanking(scores, INDIFFERENCE, pairs=chosen, family=3, is_endless=True)
        ranking.validate()
        for one, (first, second) in zip(ranking.decisions(), chosen, strict=True):
            difference = float(chances[first].mean() - chances[second].mean())
            wrong += one.verdict in {"better", "not worse"} and difference < -INDIFFERENCE
            wrong += one.verdict in {"worse", "not better"} and difference > INDIFFERENCE
            held += one.low <= difference <= one.high
            decided += one.verdict != "open"
            told += one.rows == 300
        assert ranking.open_pairs + len(ranking.decided()) == 2
    assert (wrong, told) == (0, 40)
    assert held >= 0.95 * told
    assert decided > told / 3


def test_an_endless_table_is_never_known_for_certain_and_a_verdict_becomes_stronger_with_more_rows() -> None:
    scores = drawn(np.random.default_rng(10), (0.5, 0), 1_500)
    found = []
    for rows in (60, 250, 1_500):
        (decision,) = PairwiseRanking(scores[:, :rows], 0.05, is_endless=True).decisions()
        found.append(decision)
    assert [one.verdict for one in found] == ["open", "not worse", "better"]
    assert all(one.certainty < 1 and one.rows == rows for one, rows in zip(found, (60, 250, 1_500), strict=True))


def test_overwhelming_evidence_is_not_rounded_to_certainty() -> None:
    scores = np.vstack([np.ones(2_000), np.zeros(2_000)])
    (decision,) = PairwiseRanking(scores, 0.05, is_endless=True).decisions()
    assert decision.verdict == "better"
    assert 0.999 < decision.certainty < 1
