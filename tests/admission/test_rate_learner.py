"""Limits per minute that are learnt from refusals that tell nothing."""

from __future__ import annotations

import math

import pytest

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import AdaptiveLaw
from headgate.admission.rate_learner import RateLearner
from headgate.core.rates import UNLIMITED
from headgate_bench.limited_providers import ProviderScript
from headgate_bench.rated_provider import rated_case
from headgate_bench.token_rates import ControllerRule, play_rated
from tests.admission.laws.test_with_controller import MODEL, Backlog


def test_a_limit_of_tokens_that_nobody_tells_is_found_and_kept() -> None:
    rule = ControllerRule(AdaptiveLaw, 100, UNLIMITED, heeds=True)
    case = rated_case("S9", 1_800.0)
    record = play_rated(case, lambda _: rule, seed=50)
    assert record.goodput >= 0.95 * 40_000 * 30
    assert record.refused_share <= 0.03
    (status,) = rule.statuses(1_800.0)
    (rate,) = status.rates
    assert rate.is_learnt
    assert not rate.is_told
    assert rate.unit in {"output_tokens_per_minute", "tokens_per_minute"}
    assert status.pressure in {rate.unit, "waiters"}


@pytest.mark.parametrize(
    "script",
    [
        ProviderScript(caps=((0.0, 80.0), (120.0, 20.0))),
        ProviderScript("rate", caps=((0.0, 20.0),)),
        ProviderScript(storm=(60.0, 100.0)),
    ],
    ids=["a cap that is cut", "requests per second", "a storm"],
)
def test_refusals_for_other_reasons_teach_no_limit_per_minute(script: ProviderScript) -> None:
    backlog = Backlog(script, seed=4)
    backlog.agenda.run(240.0)
    assert backlog.controller.accounts.by_name[MODEL].rates is None


def answer(learner: RateLearner, since: float, until: float, tokens: int) -> None:
    """Have an answer of so many tokens come every second."""
    for at in range(round(since), round(until)):
        outcome = RequestOutcome(OutcomeKind.SUCCESS, None, 1.0, None, tokens, tokens)
        learner.answered(at - 0.5, outcome, float(at))


def refuse(learner: RateLearner, at: float, times: int = 6) -> None:
    """Have everything refused, while less and less is in flight."""
    for n in range(times):
        learner.refused(40 // (n + 1), at + n / 10)


def taught(tokens: int = 100, refusals: int = 6) -> RateLearner:
    """Return one that saw two outbreaks, a minute of answers apart."""
    learner = RateLearner(0.0)
    refuse(learner, 0.0, refusals)
    answer(learner, 1.0, 61.0, tokens)
    refuse(learner, 61.0)
    return learner


def test_what_was_answered_between_two_outbreaks_is_the_limit() -> None:
    learner = taught()
    assert learner.unit == 3
    assert learner.limit == pytest.approx(12_000, rel=0.03)


def test_without_counts_of_tokens_requests_are_limited() -> None:
    learner = taught(tokens=0)
    assert learner.unit == 0
    assert learner.limit == pytest.approx(60, rel=0.03)


def test_few_refusals_teach_nothing() -> None:
    assert taught(refusals=1).limit == math.inf


def test_probes_in_an_outbreak_become_rarer() -> None:
    learner, pauses = RateLearner(0.0), []
    for at in range(1, 80, 16):
        learner.refused(1, float(at))
        pauses.append(learner.pause_s)
    assert pauses == [3.0, 6.0, 12.0, 15.0, 15.0]


def test_a_limit_that_holds_nothing_back_grows_and_is_forgotten() -> None:
    learner = taught()
    for minute in range(2, 60):
        answer(
            learner, 60.0 * minute, 60.0 * minute + 60.0, round(learner.limit / 120) if learner.limit < math.inf else 1
        )
    assert learner.limit == math.inf


def test_a_limit_that_brings_no_fewer_refusals_is_given_up_and_not_tried_at_once_again() -> None:
    learner, at = taught(), 62.0
    for _ in range(6):
        answer(learner, at, at + 60.0, 100)
        refuse(learner, at + 60.0)
        at += 61.0
    assert learner.limit == math.inf
    answer(learner, at, at + 60.0, 100)
    refuse(learner, at + 60.0)
    assert learner.limit == math.inf
    refuse(learner, at + 700.0)
    answer(learner, at + 701.0, at + 761.0, 100)
    refuse(learner, at + 761.0)
    assert learner.limit < math.inf


def test_recovery_from_a_storm_is_not_taken_for_a_limit() -> None:
    learner = RateLearner(0.0)
    for second in range(60):
        answer(learner, second, second + 1.0, 100)
        answer(learner, second, second + 1.0, 100)
        answer(learner, second, second + 1.0, 100)
    refuse(learner, 60.0, 20)
    answer(learner, 90.0, 130.0, 100)
    refuse(learner, 130.0)
    assert learner.limit == math.inf
