"""The set of victims against brute force, on predicates as the ledger has them: nodes and a quota."""

from __future__ import annotations

from itertools import combinations
from math import fsum
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.placement import victims
from headgate.placement.victims import Candidate, Sufficient, cheapest_set


def _worth(chosen: tuple[Candidate, ...]) -> tuple[float, ...]:
    if not chosen:
        return (-(10**9),)
    latest = max(each.started_at for each in chosen)
    return max(each.band for each in chosen), fsum(each.cost for each in chosen), len(chosen), -latest


def _by_brute_force(candidates: list[Candidate], sufficient: Sufficient) -> tuple[float, ...] | None:
    sets = (c for size in range(len(candidates) + 1) for c in combinations(candidates, size))
    return min((_worth(c) for c in sets if sufficient(frozenset(each.request_id for each in c))), default=None)


@st.composite
def _problems(draw: st.DrawFn, largest: int = 9, smallest: int = 0) -> tuple[list[Candidate], Sufficient]:
    """Return candidates on two nodes, and whether one of two placements and the quota are met without them."""
    count = draw(st.integers(smallest, largest))
    candidates = [
        Candidate(
            f"r{number}",
            draw(st.integers(0, 2)),
            draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])),
            draw(st.integers(0, 3)),
        )
        for number in range(count)
    ]
    frees = {
        each.request_id: draw(st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(0, 2))) for each in candidates
    }
    needed = draw(st.tuples(st.integers(0, 8), st.integers(0, 4), st.integers(0, 14)))
    gang = draw(st.booleans())

    def sufficient(stopped: frozenset[str]) -> bool:
        room = [(0, 0), (0, 0)]
        for request_id in stopped:
            node, cpu, gpu = frees[request_id]
            room[node] = (room[node][0] + cpu, room[node][1] + gpu)
        lies = [cpu >= needed[0] and gpu >= needed[1] for cpu, gpu in room]
        return (all(lies) if gang else any(lies)) and sum(cpu for cpu, _ in room) >= needed[2]

    return candidates, sufficient


@given(_problems())
def test_a_small_search_finds_the_best_set_there_is(problem: tuple[list[Candidate], Sufficient]) -> None:
    candidates, sufficient = problem
    found = cheapest_set(candidates, sufficient)
    assert (None if found is None else _worth(found)) == _by_brute_force(candidates, sufficient)


@given(_problems(largest=30), st.integers(0, 3))
def test_a_large_search_stops_nobody_in_vain(problem: tuple[list[Candidate], Sufficient], exact_up_to: int) -> None:
    candidates, sufficient = problem
    with mock.patch.object(victims, "EXACT_UP_TO", exact_up_to):
        found = cheapest_set(candidates, sufficient)
    everybody = frozenset(each.request_id for each in candidates)
    if found is None:
        assert not sufficient(everybody)
        return
    ids = frozenset(each.request_id for each in found)
    assert len(ids) == len(found)
    assert ids <= everybody
    assert sufficient(ids)
    assert not any(sufficient(ids - {each}) for each in ids)
    assert _worth(found) <= _worth(tuple(candidates))
    top = max((each.band for each in found), default=-1)
    lower = frozenset(each.request_id for each in candidates if each.band < top)
    assert not found or not sufficient(lower), "a lower band would have been enough"


@given(_problems(smallest=1))
def test_no_set_is_asked_about_twice(problem: tuple[list[Candidate], Sufficient]) -> None:
    candidates, sufficient = problem
    asked: list[frozenset[str]] = []

    def asking(stopped: frozenset[str]) -> bool:
        asked.append(stopped)
        return sufficient(stopped)

    cheapest_set(candidates, asking)
    assert len(asked) == len(set(asked))


def test_nobody_is_stopped_when_there_is_room() -> None:
    assert cheapest_set([Candidate("a", 0, 0.0, 0)], lambda _: True) == ()
    assert cheapest_set([], lambda _: False) is None


@pytest.mark.parametrize("exact_up_to", [12, 0])
def test_a_lower_band_goes_first_whatever_it_costs(exact_up_to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "EXACT_UP_TO", exact_up_to)
    candidates = [Candidate("high", 8, 0.0, 0), Candidate("low", 3, 99.0, 0)]
    found = cheapest_set(candidates, bool)
    assert found == (candidates[1],)


@pytest.mark.parametrize("exact_up_to", [12, 0])
def test_of_equals_the_one_that_started_last_is_stopped(exact_up_to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "EXACT_UP_TO", exact_up_to)
    candidates = [Candidate("old", 3, 1.0, 10.0), Candidate("new", 3, 1.0, 20.0), Candidate("older", 3, 1.0, 5.0)]
    assert cheapest_set(candidates, bool) == (candidates[1],)


def test_fewer_victims_are_taken_at_the_same_cost() -> None:
    halves = [Candidate("half-a", 3, 1.0, 9.0), Candidate("half-b", 3, 1.0, 9.0)]
    whole = Candidate("whole", 3, 2.0, 0.0)

    def sufficient(stopped: frozenset[str]) -> bool:
        return "whole" in stopped or len(stopped) == 2

    assert cheapest_set([*halves, whole], sufficient) == (whole,)


def test_the_greedy_search_tries_the_last_victim_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "EXACT_UP_TO", 0)
    small = [Candidate(f"small-{number}", 3, 1.0 + number, 0.0) for number in range(3)]
    large = Candidate("large", 3, 4.5, 0.0)
    sizes = {"small-0": 1, "small-1": 1, "small-2": 1, "large": 4}

    def sufficient(stopped: frozenset[str]) -> bool:
        return sum(sizes[each] for each in stopped) >= 4

    assert cheapest_set([*small, large], sufficient) == (large,)


def test_a_few_bands_are_searched_exactly_among_many_candidates() -> None:
    low = [Candidate("a", 1, 1.0, 0.0), Candidate("b", 1, 1.1, 0.0), Candidate("c", 1, 2.0, 0.0)]
    high = [Candidate(f"high-{number}", 5, 0.0, 0.0) for number in range(40)]

    def sufficient(stopped: frozenset[str]) -> bool:
        return {"a", "b"} <= stopped or {"c"} <= stopped or len(stopped) > 20

    assert cheapest_set([*low, *high], sufficient) == (low[2],)


def test_twelve_candidates_take_few_questions() -> None:
    candidates = [Candidate(f"r{number:02d}", 1, 1.0 + number / 7, float(number)) for number in range(12)]
    asked = 0

    def sufficient(stopped: frozenset[str]) -> bool:
        nonlocal asked
        asked += 1
        return sum(1 + int(each[1:]) % 3 for each in stopped) >= 9

    assert cheapest_set(candidates, sufficient) is not None
    assert asked < 200
