"""Settings of the laws: bad values are refused by name, and the campaign's settings choose the law."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headgate.admission.laws import (
    AdaptiveLaw,
    AdaptiveSettings,
    AimdLaw,
    AimdSettings,
    QueueGuardSettings,
    law_factory,
)
from headgate.config import Settings
from headgate.core.errors import InvalidSettingError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_limit", 0),
        ("max_limit_clamp", -1),
        ("cooldown_s", 0.0),
        ("cooldown_s", math.nan),
        ("longest_cooldown_s", 1.0),
        ("decrease_factor", 0.0),
        ("decrease_factor", 1.0),
        ("decrease_factor", math.nan),
        ("increase_step", 0),
        ("successes_until_increase", 0),
        ("startup_ramp_s", -1.0),
        ("startup_ramp_s", math.inf),
    ],
)
def test_a_bad_setting_of_the_seeds_law_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        AimdSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_limit", 0),
        ("startup_ramp_s", -1.0),
        ("used_share", 1.0),
        ("first_growth", 0.0),
        ("cut", 1.5),
        ("most_probe_rounds", 1.0),
        ("longest_cooldown_s", math.inf),
    ],
)
def test_a_bad_setting_of_the_default_law_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        AdaptiveSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("first_cohort", 0), ("most_cohort", 10), ("fall", 1.0), ("certainty", 0.0), ("hold_mid", 0.01)]
)
def test_a_bad_setting_of_the_guard_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        QueueGuardSettings(**{name: value})


def test_a_campaign_gets_the_default_law() -> None:
    law = law_factory(Settings())(40)
    assert isinstance(law, AdaptiveLaw)
    assert law.max_limit == 40


def test_a_campaign_can_ask_for_the_seeds_law_with_its_settings() -> None:
    settings = Settings(
        limit_law="aimd",
        cooldown_seconds=600.0,
        multiplicative_decrease_factor=0.5,
        additive_increase_step=3,
        successes_until_increase=1,
    )
    law = law_factory(settings)(40)
    assert isinstance(law, AimdLaw)
    from headgate.admission import SUCCESS, OutcomeKind, RequestOutcome

    law.observe(law.admitted(1, 0.0), RequestOutcome(OutcomeKind.RATE_LIMITED), 1, 0.0)
    assert (law.limit, law.blocked_until) == (20, 600.0)
    law.observe(law.admitted(1, 600.0), SUCCESS, 1, 600.0)
    assert law.limit == 23


@pytest.mark.parametrize("name", ["adaptive", "aimd"])
def test_the_startup_ramp_holds_for_both_laws(name: str) -> None:
    law = law_factory(Settings(limit_law=name, startup_ramp_seconds=30.0))(10)
    law.tick(0.0)
    assert law.limit == 1
    law.tick(30.0)
    assert law.limit == 10
