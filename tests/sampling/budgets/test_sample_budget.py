"""What one sample may spend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Message, Spending
from headgate.sampling.budgets import (
    COMPLETION_FLOOR,
    Allowed,
    Habits,
    SampleBudget,
    SampleLimits,
    Spent,
    prompt_chars,
)


@given(
    st.integers(32, 5_000),
    st.lists(st.tuples(st.integers(1, 900), st.floats(0, 1)), max_size=20),
)
def test_a_reply_within_its_bound_never_passes_the_budget(limit: int, turns: list[tuple[int, float]]) -> None:
    budget = SampleBudget(SampleLimits(tokens=limit))
    for prompt, share in turns:
        allowed = budget.ask(prompt)
        if isinstance(allowed, Spent):
            assert limit - budget.prompt_tokens - budget.completion_tokens - prompt < COMPLETION_FLOOR
            return
        assert allowed.max_completion is not None
        assert allowed.max_completion >= COMPLETION_FLOOR
        budget.answered(prompt, int(allowed.max_completion * share), 0.1)
        budget.validate()
        assert budget.prompt_tokens + budget.completion_tokens <= limit


def test_the_reply_is_bounded_by_the_smaller_of_both_token_budgets() -> None:
    budget = SampleBudget(SampleLimits(tokens=1_000, completion_tokens=300))
    assert budget.ask(200) == Allowed(300)
    budget.answered(200, 250, 1.0)
    assert budget.ask(200) == Allowed(50)
    budget.answered(200, 50, 1.0)
    refused = budget.ask(100)
    assert isinstance(refused, Spent)
    assert refused.limit == "sample_completion_tokens"
    assert refused.reason == (
        "the sample's budget sample_completion_tokens is used up: 300 of 300 completion tokens after 2 replies; "
        "the next reply needs at least 16"
    )


def test_an_answer_that_comes_after_the_time_is_too_late() -> None:
    budget = SampleBudget(SampleLimits(time_s=10.0))
    assert budget.answered(5, 5, 9.5) is None
    assert budget.ask(5) == Allowed(None)
    late = budget.answered(5, 5, 1.0)
    assert late == Spent("sample_time_s", "the sample's budget sample_time_s is used up: 10.5 of 10 s after 2 replies")
    assert budget.ask(5) == late


def test_an_answer_on_the_last_moment_counts_and_no_further_request_fits() -> None:
    budget = SampleBudget(SampleLimits(time_s=10.0))
    assert budget.answered(5, 5, 10.0) is None
    assert isinstance(budget.ask(5), Spent)


def test_without_limits_everything_fits() -> None:
    budget = SampleBudget(SampleLimits())
    assert not budget.limits.any
    assert budget.ask(10**9) == Allowed(None)


def test_two_limits_hold_together() -> None:
    both = SampleLimits(tokens=100, time_s=5.0).and_also(SampleLimits(tokens=200, completion_tokens=50))
    assert both == SampleLimits(100, 50, 5.0)


def test_estimates_follow_what_the_endpoint_counts() -> None:
    habits = Habits()
    assert habits.tokens_of(400) == pytest.approx(100, abs=1)
    for _ in range(200):
        habits.answered(chars=400, prompt_tokens=200, completion_tokens=40)
    assert habits.tokens_of(400) == pytest.approx(200, abs=3)
    assert habits.completion_tokens == pytest.approx(41, abs=2)
    assert habits.sample is None
    habits.ended(Spending(100, 1, 50))
    assert habits.sample == Spending(100, 1, 50)


def test_the_frame_of_a_message_counts() -> None:
    assert prompt_chars([Message("user", "four"), Message("user", "")]) == 4 + 2 * 16
