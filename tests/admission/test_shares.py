"""Fair shares of a limit between processes, and of a process's slots between providers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.admission.bank import fair_shares, split_slots

WANTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 40), min_size=1)
USES = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1)


@given(st.integers(-5, 100), WANTS)
def test_shares_add_up_and_nobody_gets_more_than_he_wants(total: int, wants: dict[str, int]) -> None:
    shares = fair_shares(total, wants)
    assert sum(shares.values()) == min(max(0, total), sum(wants.values()))
    assert all(0 <= shares[name] <= wants[name] for name in wants)


@given(st.integers(0, 100), WANTS)
def test_who_gets_less_than_he_wants_gets_as_much_as_anybody_to_within_one(total: int, wants: dict[str, int]) -> None:
    shares = fair_shares(total, wants)
    most = max(shares.values())
    assert all(shares[name] >= most - 1 for name in wants if shares[name] < wants[name])


@given(st.integers(0, 60), USES)
def test_what_is_in_flight_and_what_may_be_started_never_exceed_what_is_held(
    held: int, uses: dict[str, tuple[int, int]]
) -> None:
    caps = split_slots(held, uses)
    in_use = sum(used for used, _ in uses.values())
    assert sum(max(caps[name], used) for name, (used, _) in uses.items()) <= max(held, in_use)
    assert all(cap >= 0 for cap in caps.values())
    if sum(used + waiting for used, waiting in uses.values()) <= held:
        assert all(caps[name] >= used + waiting for name, (used, waiting) in uses.items())


def test_a_provider_that_fills_all_slots_gives_some_up_as_its_requests_end() -> None:
    assert split_slots(8, {"a": (8, 50), "b": (0, 50)}) == {"a": 4, "b": 0}
    assert split_slots(8, {"a": (6, 50), "b": (0, 50)}) == {"a": 4, "b": 2}
    assert split_slots(8, {"a": (4, 50), "b": (2, 50)}) == {"a": 4, "b": 4}


def test_slots_that_nobody_wants_are_dealt_out_evenly() -> None:
    assert split_slots(8, {"a": (1, 0), "b": (0, 0)}) == {"a": 4, "b": 4}
