from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.statistics import holm, indistinct_groups

p_values = st.lists(st.floats(0, 1), max_size=12)


def test_holm_steps_down() -> None:
    # Holm 1979 by hand: 0.01 x 4, 0.02 x 3, 0.03 x 2 -> at least the one before, 0.5.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@given(p_values)
def test_adjusted_values_keep_the_order_and_are_never_smaller(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= a <= min(1.0, p * len(values)) + 1e-12 or a >= p for p, a in zip(values, adjusted, strict=True))
    for (p, a), (q, b) in combinations(zip(values, adjusted, strict=True), 2):
        if p < q:
            assert a <= b


@given(p_values)
def test_what_holm_rejects_is_what_testing_one_by_one_at_rising_levels_rejects(values: list[float]) -> None:
    rejected = set()
    for step, place in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        if values[place] * (len(values) - step) > 0.05:
            break
        rejected.add(place)
    assert {i for i, a in enumerate(holm(values)) if a <= 0.05} == rejected


def test_neighbours_share_groups_that_overlap() -> None:
    assert indistinct_groups(4, {(0, 2), (0, 3), (1, 3)}) == [(0, 1), (1, 2), (2, 3)]
    assert indistinct_groups(3, set()) == [(0, 1, 2)]
    assert indistinct_groups(0, set()) == []


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from([*combinations(range(n), 2), (0, 0)])))
    )
)
def test_groups_are_the_largest_sets_in_which_nobody_was_told_apart(given: tuple[int, set[tuple[int, int]]]) -> None:
    count, drawn = given
    apart = {pair for pair in drawn if pair[0] != pair[1]}
    cliques = [
        set(members)
        for size in range(1, count + 1)
        for members in combinations(range(count), size)
        if not any(pair in apart for pair in combinations(members, 2))
    ]
    largest = sorted(tuple(sorted(c)) for c in cliques if not any(c < other for other in cliques))
    assert indistinct_groups(count, apart) == largest
