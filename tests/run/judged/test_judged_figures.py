"""How far judgements agree, as a sample's reason states it and as the counts read it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.environments import Judgement
from headgate.run.judging import JudgedFigures, agreement, note, noted_values, read_note


def test_agreement_is_1_minus_the_mean_distance_of_two_judgements() -> None:
    assert agreement([0.5, 0.5, 0.5]) == 1.0
    assert agreement([0.0, 1.0]) == 0.0
    assert agreement([0.2, 0.4, 0.6]) == pytest.approx(1 - (0.2 + 0.2 + 0.4) / 3)
    assert agreement([0.7]) is None
    assert agreement([]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=15), st.integers(0, 5), st.text())
def test_what_a_note_states_is_read_back_whatever_the_reason_says(values: list[float], left_out: int, why: str) -> None:
    judgements = [Judgement(value, "") for value in values]
    count, agreed = read_note(note(judgements, len(values) + left_out, why))
    assert count == len(values)
    expected = agreement(values)
    assert agreed == (None if expected is None else pytest.approx(expected, abs=0.006))


def test_a_reason_of_an_environment_s_own_is_no_note() -> None:
    assert read_note("the answer is empty") == (0, None)


def test_failures_are_counted_apart_and_stand_in_no_mean() -> None:
    figures = JudgedFigures()
    figures.count("a@main", "e", 1.0, None, "2 of 2 judgements agree to 0.50 (0.50 to 1.00): x", success=True)
    figures.count("a@main", "e", 0.0, None, "the answer is empty", success=False)
    figures.count("a@main", "e", None, "judge", "", success=False)
    figures.count("a@main", "e", None, "auth", "", success=False)
    (pair,) = figures.pairs()
    assert (pair.samples, pair.scored, pair.mean_score, pair.successes) == (4, 2, 0.5, 1)
    assert (pair.judgements, pair.agreement) == (2, 0.5)
    assert (pair.judge_errors, pair.errors) == (1, 1)


def test_single_judgements_are_read_back_and_a_range_alone_gives_none() -> None:
    said = note([Judgement(value, "") for value in (0.25, 1.0, 0.5)], 3, "0.7 (0.1, 0.2): no")
    assert noted_values(said) == (0.25, 1.0, 0.5)
    assert noted_values("2 of 3 judgements agree to 0.90 (0.70 to 0.80): x") == (0.7, 0.8)
    assert noted_values("3 of 3 judgements agree to 0.90 (0.70 to 0.80): x") == ()
    assert noted_values("the answer is empty") == ()


def test_agreement_is_told_by_environment() -> None:
    figures = JudgedFigures()
    for values in ((0.0, 0.0), (1.0, 1.0), (0.5, 1.0)):
        why = note([Judgement(value, "") for value in values], 2, "x")
        figures.count("a@main", "e", 0.5, None, why, success=False)
    ((environment, made),) = figures.agreements()
    assert (environment, made.answers, made.judgements) == ("e", 3, 6)
    assert made.alpha is not None
    assert 0.5 < made.alpha < 1.0
