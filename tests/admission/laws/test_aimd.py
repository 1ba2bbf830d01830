"""The law of seed 004, rule by rule, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from headgate.admission import SUCCESS, OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted, AimdLaw, AimdSettings, LimitChange

LIMITED = RequestOutcome(OutcomeKind.RATE_LIMITED)


def limited(retry_after_s: float) -> RequestOutcome:
    return RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=retry_after_s)


def succeed(law: AimdLaw, times: int, now: float) -> list[LimitChange]:
    changes = []
    for _ in range(times):
        changes += law.observe(law.admitted(1, now), SUCCESS, 1, now)
        law.validate()
    return changes


def refuse(law: AimdLaw, now: float, outcome: RequestOutcome = LIMITED) -> list[LimitChange]:
    changes = law.observe(law.admitted(1, now), outcome, 1, now)
    law.validate()
    return changes


def test_a_history_worked_out_by_hand() -> None:
    law = AimdLaw(40)
    seen = [law.limit]
    for step in (
        lambda: refuse(law, 0.0),  # 40 * 0.75
        lambda: refuse(law, 0.1),  # 30 * 0.75 = 22.5
        lambda: succeed(law, 30, 1.0),  # within the cooldown, which ends at 2.1
        lambda: succeed(law, 24, 3.0),  # one too few
        lambda: succeed(law, 1, 3.0),  # the 25th
        lambda: succeed(law, 24, 4.0),
        lambda: refuse(law, 5.0),  # 23 * 0.75 = 17.25; the streak is gone
        lambda: succeed(law, 24, 8.0),
        lambda: succeed(law, 26, 9.0),  # 25 + 25
    ):
        step()
        seen.append(law.limit)
    assert seen == [40, 30, 22, 22, 22, 23, 23, 17, 17, 19]


def test_it_starts_at_the_cap() -> None:
    assert AimdLaw(40).limit == 40


@pytest.mark.parametrize(
    ("settings", "cap", "expected"),
    [
        (AimdSettings(initial_limit=5), 40, (5, 40)),
        (AimdSettings(initial_limit=50), 40, (40, 40)),
        (AimdSettings(max_limit_clamp=8), 40, (8, 8)),
        (AimdSettings(max_limit_clamp=80), 40, (40, 40)),
        (AimdSettings(initial_limit=5, max_limit_clamp=3), 40, (3, 3)),
    ],
)
def test_start_and_clamp_stay_below_the_cap(settings: AimdSettings, cap: int, expected: tuple[int, int]) -> None:
    law = AimdLaw(cap, settings)
    assert (law.limit, law.max_limit) == expected


def test_a_burst_let_through_under_one_limit_cuts_once() -> None:
    law = AimdLaw(40)
    burst = [law.admitted(number, 0.0) for number in range(1, 41)]
    changes = [change for admitted in burst for change in law.observe(admitted, LIMITED, 40, 0.05)]
    assert changes == [LimitChange(40, 30, "decreased")]


def test_a_refusal_under_the_lowered_limit_cuts_again() -> None:
    law = AimdLaw(40)
    refuse(law, 0.0)
    assert refuse(law, 3.0) == [LimitChange(30, 22, "decreased")]


def test_the_limit_never_falls_below_one() -> None:
    law = AimdLaw(3)
    for number in range(10):
        refuse(law, 10.0 * number)
    assert law.limit == 1


@pytest.mark.parametrize(
    "kind",
    [kind for kind in OutcomeKind if kind not in (OutcomeKind.SUCCESS, OutcomeKind.RATE_LIMITED)],
)
def test_other_outcomes_move_nothing(kind: OutcomeKind) -> None:
    law = AimdLaw(40)
    for _ in range(100):
        assert law.observe(law.admitted(1, 0.0), RequestOutcome(kind), 1, 0.0) == []
    assert (law.limit, law.blocked_until, law.ceiling) == (40, -math.inf, None)


def test_a_refusal_blocks_for_the_cooldown_or_for_retry_after() -> None:
    law = AimdLaw(40)
    refuse(law, 10.0)
    assert law.blocked_until == 12.0
    refuse(law, 20.0, limited(7.5))
    assert law.blocked_until == 27.5


def test_the_cooldown_only_ever_gets_longer() -> None:
    law = AimdLaw(40)
    refuse(law, 0.0, limited(60.0))
    refuse(law, 1.0)
    assert law.blocked_until == 60.0


@pytest.mark.parametrize(
    ("asked", "until"), [(1e9, 300.0), (math.inf, 300.0), (0.0, 2.0), (-5.0, 2.0), (math.nan, 2.0)]
)
def test_an_absurd_retry_after_is_clamped_or_replaced(asked: float, until: float) -> None:
    law = AimdLaw(40)
    refuse(law, 0.0, limited(asked))
    assert law.blocked_until == until


def test_the_ceiling_is_the_limit_of_the_first_refused_attempt() -> None:
    law = AimdLaw(40)
    refuse(law, 0.0)
    refuse(law, 5.0)
    assert law.ceiling == 40


def test_growing_past_the_ceiling_and_to_the_cap_is_told() -> None:
    law = AimdLaw(4, AimdSettings(initial_limit=2, successes_until_increase=1))
    refuse(law, 0.0)
    assert (law.limit, law.ceiling) == (1, 2)
    assert succeed(law, 1, 3.0) == [LimitChange(1, 2, "increased")]
    assert succeed(law, 1, 3.0) == [LimitChange(2, 3, "increased"), LimitChange(2, 3, "soft_ceiling_recovered")]
    assert succeed(law, 1, 3.0) == [LimitChange(3, 4, "increased"), LimitChange(3, 4, "fully_recovered")]
    assert succeed(law, 1, 3.0) == []


def test_the_step_and_the_factor_are_settings() -> None:
    law = AimdLaw(100, AimdSettings(decrease_factor=0.5, increase_step=10, successes_until_increase=2, cooldown_s=1.0))
    refuse(law, 0.0)
    succeed(law, 2, 1.0)
    assert law.limit == 60


def test_the_ramp_rises_from_one_and_ends_at_the_start() -> None:
    law = AimdLaw(11, AimdSettings(startup_ramp_s=10.0))
    law.tick(100.0)
    heights = []
    for at in (100.0, 100.9, 101.0, 105.5, 109.9, 110.0, 200.0):
        law.tick(at)
        heights.append(law.limit)
    assert heights == [1, 1, 2, 6, 10, 11, 11]


def test_the_ramp_says_when_it_rises_next() -> None:
    law = AimdLaw(11, AimdSettings(startup_ramp_s=10.0))
    at = law.next_change_at(0.0)
    times = []
    while at is not None:
        law.tick(at)
        times.append(at)
        at = law.next_change_at(at)
    assert times == list(range(1, 11))
    assert law.limit == 11


def test_successes_do_not_count_while_the_ramp_rises() -> None:
    law = AimdLaw(11, AimdSettings(startup_ramp_s=10.0))
    law.tick(0.0)
    assert succeed(law, 100, 0.5) == []


def test_a_refusal_ends_the_ramp() -> None:
    law = AimdLaw(11, AimdSettings(startup_ramp_s=10.0))
    law.tick(0.0)
    law.tick(4.0)
    refuse(law, 4.0)
    assert law.next_change_at(4.0) is None
    assert law.tick(9.0) is None
    assert law.limit == 3


def test_a_lowered_cap_lowers_the_limit_and_a_raised_one_does_not_raise_it() -> None:
    law = AimdLaw(40)
    assert law.set_max(10, 0.0) == LimitChange(40, 10, "decreased")
    assert law.set_max(80, 0.0) is None
    assert (law.limit, law.max_limit) == (10, 80)


def test_an_attempt_remembers_what_it_was_let_through_under() -> None:
    assert AimdLaw(40).admitted(3, 1.5) == Admitted(1.5, 40, 3)
