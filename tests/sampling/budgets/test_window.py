"""The window of 24 h agrees with counting one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core import NO_SPENDING, Spending
from headgate.sampling.budgets import SpendingWindow

DAY_S = 86_400.0
MINUTE_S = 60.0

spendings = st.builds(Spending, st.integers(0, 1_000), st.integers(0, 9), st.integers(0, 10**9))
steps = st.lists(st.tuples(st.floats(0, 30_000), spendings), max_size=40)


def brute_force(spent: list[tuple[float, Spending]], now: float) -> Spending:
    """What was spent in minutes that ended less than 24 h ago, or have not ended."""
    total = NO_SPENDING
    for at, amount in spent:
        if (at // MINUTE_S + 1) * MINUTE_S + DAY_S > now:
            total = total.plus(amount)
    return total


@given(steps)
def test_the_total_is_what_counting_one_by_one_gives(taken: list[tuple[float, Spending]]) -> None:
    window, now, spent = SpendingWindow(), 1_000.0, []
    for wait_s, amount in taken:
        now += wait_s
        window.add(amount, now)
        spent.append((now, amount))
        window.validate()
        assert window.total(now) == brute_force(spent, now)


@given(steps, st.integers(0, 3_000))
def test_the_time_at_which_it_fits_is_the_first_one(taken: list[tuple[float, Spending]], limit: int) -> None:
    window, now, spent = SpendingWindow(), 1_000.0, []
    for wait_s, amount in taken:
        now += wait_s
        window.add(amount, now)
        spent.append((now, amount))
    at = window.when(lambda left: left.tokens <= limit, now)
    assert at is not None
    assert brute_force(spent, at).tokens <= limit
    if at > now:
        assert brute_force(spent, at - 0.5).tokens > limit, "a moment earlier it does not fit"


def test_what_was_spent_counts_for_a_day_and_less_than_a_minute_longer() -> None:
    window = SpendingWindow()
    window.add(Spending(10, 1), 90.0)
    assert window.total(90.0 + DAY_S).tokens == 10
    assert window.total(90.0 + DAY_S + MINUTE_S).tokens == 0


def test_a_clock_that_goes_back_changes_nothing() -> None:
    window = SpendingWindow()
    window.add(Spending(10, 1), 500.0)
    window.add(Spending(5, 1), 100.0)
    window.validate()
    assert window.total(0.0).tokens == 15
