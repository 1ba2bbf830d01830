from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.admission import ProviderModel, RetryBudget
from headgate.admission.executor import RESERVE, RESERVE_REFILL_PER_S, SAVED_AT_MOST

ONE, OTHER = ProviderModel("http://one", "m"), ProviderModel("http://two", "m")


def spend(budget: RetryBudget, account: ProviderModel, now: float, at_most: int = 1_000) -> int:
    spent = 0
    while spent < at_most and budget.may_retry(account, now):
        spent += 1
    return spent


def test_a_quiet_endpoint_may_retry_its_first_requests() -> None:
    assert spend(RetryBudget(0.2), ONE, 0.0) == int(RESERVE)


def test_five_requests_earn_one_retry() -> None:
    budget = RetryBudget(0.2)
    spend(budget, ONE, 0.0)
    for _ in range(10):
        budget.requested(ONE, 0.0)
    assert spend(budget, ONE, 0.0) == 2


def test_an_endpoint_that_waits_earns_its_reserve_back_and_no_more() -> None:
    budget = RetryBudget(0.2)
    spend(budget, ONE, 0.0)
    assert spend(budget, ONE, 1.0 / RESERVE_REFILL_PER_S) == 1
    assert spend(budget, ONE, 1e9) == int(RESERVE)


def test_health_cannot_be_saved_up_for_ever() -> None:
    budget = RetryBudget(1.0)
    for _ in range(10_000):
        budget.requested(ONE, 0.0)
    assert spend(budget, ONE, 0.0) <= SAVED_AT_MOST + 1


def test_endpoints_have_budgets_of_their_own() -> None:
    budget = RetryBudget(0.2)
    spend(budget, ONE, 0.0)
    assert budget.may_retry(OTHER, 0.0)
    assert budget.denied == {ONE: 1}


def test_a_forgotten_endpoint_begins_anew() -> None:
    budget = RetryBudget(0.2)
    spend(budget, ONE, 0.0)
    budget.forget(ONE)
    assert budget.denied == {}
    assert spend(budget, ONE, 0.0) == int(RESERVE)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_of_zero_to_one_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\]"):
        RetryBudget(share)


@given(
    st.floats(0, 1),
    st.lists(st.tuples(st.sampled_from(["request", "retry"]), st.floats(0, 5)), max_size=300),
)
def test_retries_never_exceed_the_share_the_reserve_and_what_waiting_earned(
    share: float, steps: list[tuple[str, float]]
) -> None:
    budget, now, requests, retries = RetryBudget(share), 0.0, 0, 0
    for what, later in steps:
        now += later
        if what == "request":
            budget.requested(ONE, now)
            requests += 1
        else:
            retries += budget.may_retry(ONE, now)
        budget.validate()
    assert retries <= share * requests + RESERVE + RESERVE_REFILL_PER_S * now + 1e-6
