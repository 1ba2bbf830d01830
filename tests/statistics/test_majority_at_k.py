"""maj@k: votes among the answers of repeated samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import errors
from headgate.statistics import TooFewSamples, majority_at_k

RIGHT, WRONG, OTHER, MUTE = ("a", True), ("b", False), ("c", False), (None, False)


@pytest.mark.parametrize(
    ("votes", "k", "value"),
    [
        ([RIGHT, WRONG, RIGHT], 3, 1.0),
        ([RIGHT, WRONG, WRONG], 3, 0.0),
        ([RIGHT, WRONG], 2, 0.5),
        ([RIGHT, RIGHT, WRONG, WRONG, OTHER], 5, 0.5),
        ([RIGHT, MUTE, MUTE], 3, 1.0),
        ([MUTE, MUTE, MUTE], 3, 0.0),
        ([RIGHT, RIGHT, WRONG, WRONG, WRONG], 2, 0.5),
        ([RIGHT, WRONG, WRONG], 1, 1 / 3),
        ([("a", True), ("a", False)], 2, 0.5),
    ],
)
def test_the_answer_with_most_votes_counts(votes: list[tuple[str | None, bool]], k: int, value: float) -> None:
    made = majority_at_k([votes], k)
    assert made.mean == pytest.approx(value)


@given(st.lists(st.sampled_from([RIGHT, WRONG, OTHER, MUTE]), min_size=1, max_size=8))
def test_of_one_sample_it_is_the_mean(votes: list[tuple[str | None, bool]]) -> None:
    assert majority_at_k([votes], 1).mean == pytest.approx(sum(success for _, success in votes) / len(votes))


def test_tasks_with_fewer_samples_are_left_out_and_none_is_said() -> None:
    assert majority_at_k([[RIGHT], [WRONG, WRONG]], 2).tasks == 1
    refused = majority_at_k([[RIGHT], [WRONG, WRONG]], 3)
    assert refused == TooFewSamples(3, 2, "maj")
    assert str(refused) == "maj@3 needs 3 scored samples of a task (the most that any has is 2)"
    with pytest.raises(errors.InvalidInputError, match=r"k of maj@k must be >= 1 .got 0"):
        majority_at_k([[RIGHT]], 0)
