"""The least that a preemption could have lost, against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.placement.amounts import amounts
from headgate.placement.request import Strategy
from headgate_replay.placement import bounds as module
from headgate_replay.placement.bounds import Stoppable, fractional_bound, least_lost
from headgate_replay.placement.engine import Room, Shape, place_in
from tests.examples import examples
from tests.replay.placement.conftest import small

ROOM = Room(small(nodes=3, gpus=4).nodes)
NOTHING_FREE = [[0] * len(ROOM.names) for _ in range(3)]


def stoppable(cost: float, *at: tuple[int, float]) -> Stoppable:
    return Stoppable(tuple((node, ROOM.units_of(amounts(gpu=gpus))) for node, gpus in at), cost, 3)


def shape(gpus: float, members: int = 1, strategy: Strategy = "PACK") -> Shape:
    return ROOM.shape_of((amounts(gpu=gpus),) * members, strategy)


def brute_force(free: list[list[int]], wanted: Shape, candidates: list[Stoppable]) -> float | None:
    costs = []
    for number in range(len(candidates) + 1):
        for chosen in itertools.combinations(candidates, number):
            room = [list(units) for units in free]
            for each in chosen:
                for node, units in each.frees:
                    room[node] = [have + more for have, more in zip(room[node], units, strict=True)]
            if place_in(room, wanted) is not None:
                costs.append(sum(each.cost for each in chosen))
    return min(costs, default=None)


def test_two_cheap_victims_on_one_node_beat_a_dear_one() -> None:
    candidates = [stoppable(10, (0, 2)), stoppable(3, (1, 1)), stoppable(4, (1, 1)), stoppable(1, (2, 1))]
    found = least_lost(NOTHING_FREE, shape(2), candidates)
    assert found is not None
    assert (found.cost, found.is_exact) == (7, True)


def test_nothing_needs_to_be_stopped_where_there_is_room() -> None:
    found = least_lost([list(units) for units in ROOM.capacity], shape(2), [stoppable(1, (0, 2))])
    assert found is not None
    assert found.cost == 0


def test_there_is_no_answer_where_stopping_all_is_not_enough() -> None:
    assert least_lost(NOTHING_FREE, shape(2), [stoppable(1, (0, 1)), stoppable(1, (1, 1))]) is None


CANDIDATES = st.lists(
    st.builds(
        lambda cost, at: stoppable(cost, *at),
        st.integers(0, 20),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=2),
    ),
    max_size=8,
)
WANTED = st.one_of(
    st.builds(shape, st.sampled_from([0.5, 1, 2, 3])),
    st.builds(
        shape,
        st.sampled_from([1, 2]),
        st.integers(2, 4),
        st.sampled_from(["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]),
    ),
)


@given(CANDIDATES, WANTED)
@settings(deadline=None, max_examples=examples(40))
def test_it_is_what_brute_force_finds(candidates: list[Stoppable], wanted: Shape) -> None:
    expected = brute_force(NOTHING_FREE, wanted, candidates)
    found = least_lost(NOTHING_FREE, wanted, candidates)
    assert (None if found is None else found.cost) == expected
    if expected is not None:
        assert fractional_bound(NOTHING_FREE, wanted, candidates) <= expected + 1e-9


@given(CANDIDATES, WANTED)
@settings(deadline=None, max_examples=examples(50))
def test_a_search_that_is_cut_short_gives_a_lower_bound(candidates: list[Stoppable], wanted: Shape) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_STEPS", 2)
        found = least_lost(NOTHING_FREE, wanted, candidates)
    expected = brute_force(NOTHING_FREE, wanted, candidates)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.cost <= expected + 1e-9
        assert not found.is_exact or found.cost == expected
