from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import ErrorKind
from headgate.models import GiveUp, RetryPolicy
from headgate.models.retry import Retry

RETRIED = [
    ErrorKind.RATE_LIMITED,
    ErrorKind.PROVIDER_FAILURE,
    ErrorKind.PROVIDER_TIMEOUT,
    ErrorKind.CONNECTION,
]
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 50),
    max_refusals=st.integers(1, 50),
    base_s=st.floats(0, 10),
    factor=st.floats(1, 100),
    max_s=st.floats(10, 1000),
    max_retry_after_s=st.floats(0, 3600),
)


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind not in RETRIED])
def test_what_asking_again_cannot_change_is_never_asked_again(kind: ErrorKind) -> None:
    assert isinstance(RetryPolicy().decide(1, kind, 1.0, random.Random(0)), GiveUp)


@pytest.mark.parametrize("kind", RETRIED[1:])
def test_three_retries_by_default_and_then_it_gives_up(kind: ErrorKind) -> None:
    decisions = [RetryPolicy().decide(attempt, kind, None, random.Random(0)) for attempt in (1, 2, 3, 4)]
    assert [type(decision) for decision in decisions] == [Retry, Retry, Retry, GiveUp]
    assert decisions[3] == GiveUp("4 attempts were made")


def test_a_rate_limited_request_outlasts_a_storm_of_ten_minutes() -> None:
    policy, rng = RetryPolicy(), random.Random(0)
    waited = 0.0
    for attempt in range(1, policy.max_refusals):
        decision = policy.decide(attempt, ErrorKind.RATE_LIMITED, None, rng)
        assert isinstance(decision, Retry)
        waited += decision.after_s
    assert waited > 600
    assert isinstance(policy.decide(policy.max_refusals, ErrorKind.RATE_LIMITED, None, rng), GiveUp)


@given(policies, st.integers(1, 60), st.sampled_from(RETRIED), st.integers())
def test_a_back_off_lies_in_the_upper_half_of_its_ceiling(
    policy: RetryPolicy, attempt: int, kind: ErrorKind, seed: int
) -> None:
    decision = policy.decide(attempt, kind, None, random.Random(seed))
    if attempt >= (policy.max_refusals if kind is ErrorKind.RATE_LIMITED else policy.max_attempts):
        assert isinstance(decision, GiveUp)
    else:
        assert isinstance(decision, Retry)
        ceiling = policy.ceiling_s(attempt)
        assert ceiling / 2 <= decision.after_s <= ceiling * (1 + 1e-12)


@given(policies, st.integers(1, 2000))
def test_ceilings_never_fall_and_never_pass_the_maximum(policy: RetryPolicy, attempt: int) -> None:
    assert policy.ceiling_s(attempt) <= policy.ceiling_s(attempt + 1) <= policy.max_s


def test_the_first_ceilings_are_one_two_and_four_seconds() -> None:
    assert [RetryPolicy().ceiling_s(attempt) for attempt in (1, 2, 3, 6, 99)] == [1, 2, 4, 30, 30]


@given(policies, st.floats(0.001, 3600), st.integers())
def test_a_retry_never_comes_before_the_provider_asked_for_it(policy: RetryPolicy, asked_s: float, seed: int) -> None:
    decision = policy.decide(1, ErrorKind.RATE_LIMITED, asked_s, random.Random(seed))
    if isinstance(decision, Retry):
        assert asked_s <= decision.after_s <= asked_s * 1.1 * (1 + 1e-12)
    else:
        assert policy.max_refusals == 1 or asked_s > policy.max_retry_after_s


def test_a_provider_that_asks_for_too_long_is_not_waited_for_and_the_reason_says_how_long() -> None:
    decision = RetryPolicy().decide(1, ErrorKind.RATE_LIMITED, 600.0, random.Random(0))
    assert decision == GiveUp("the provider asks to wait 600 s, more than 120 s")


def test_a_retry_after_of_zero_backs_off_as_if_it_were_absent() -> None:
    decision = RetryPolicy().decide(1, ErrorKind.RATE_LIMITED, 0.0, random.Random(0))
    assert isinstance(decision, Retry)
    assert decision.after_s >= 0.5


@pytest.mark.parametrize(
    "fields", [{"max_attempts": 0}, {"max_refusals": 0}, {"base_s": 31.0}, {"factor": 0.5}, {"base_s": -1.0}]
)
def test_an_impossible_policy_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        RetryPolicy(**fields)  # type: ignore[arg-type]
