"""Settings: bounds, orders and defaults, as the seed has them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import MAX_DAILY_RATE, Settings, checked_rate, load_settings, setting_fields
from headgate.core.errors import InvalidSettingError

SEED_DEFAULTS = {
    "daily_rate_per_env": None,
    "low_sample_threshold": 200,
    "low_sample_multiplier": 3.0,
    "num_evaluation_workers": 20,
    "queue_max_size": 100_000,
    "queue_warning_threshold": 5_000,
    "queue_pause_threshold": 8_000,
    "queue_resume_threshold": 3_000,
    "batch_size": 50,
    "batch_flush_interval": 30.0,
    "roster_refresh_s": 600.0,
    "sink_batch_size": 300,
    "sink_max_wait": 300.0,
    "error_pause_s": 900.0,
    "error_threshold": 3,
    "max_pause_s": 86_400.0,
}


def _loaded(**flags: Any) -> Settings:
    return load_settings(flags, environ={}).settings


def test_the_seeds_defaults_are_ours() -> None:
    settings = _loaded()
    assert {name: getattr(settings, name) for name in SEED_DEFAULTS} == SEED_DEFAULTS


def test_every_setting_says_what_it_means() -> None:
    said = {name: field.description or "" for name, field in setting_fields().items()}
    assert [name for name, description in said.items() if not description.endswith(".")] == []


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, -math.inf, 1e9])
def test_a_rate_that_cannot_be_sampled_at_is_refused_with_its_value_and_the_rule(rate: float) -> None:
    with pytest.raises(ValueError, match=r"must be > 0 and <= 8\.64e\+06 samples per day \(got "):
        checked_rate(rate)
    for flags in ({"rates": {"affine:sat": rate}}, {"rates": f"affine:sat={rate}"}, {"daily_rate_per_env": rate}):
        with pytest.raises(InvalidSettingError, match="a daily rate must be > 0"):
            _loaded(**flags)


@given(st.floats(1e-6, MAX_DAILY_RATE))
def test_any_other_rate_is_taken_as_it_is(rate: float) -> None:
    assert checked_rate(rate) == rate
    assert _loaded(rates={"e": rate}).rates == {"e": rate}


@pytest.mark.parametrize("text", ["affine:sat", "affine:sat=100,affine:abd", "=", "affine:sat=fast", "affine:sat="])
def test_rates_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="rates"):
        _loaded(rates=text)


def test_rates_and_environments_may_be_written_in_one_line() -> None:
    settings = _loaded(rates=" affine:sat=100, affine:abd=0.5,", environments="affine:sat, affine:abd ,")
    assert settings.rates == {"affine:sat": 100.0, "affine:abd": 0.5}
    assert settings.environments == ("affine:sat", "affine:abd")


@pytest.mark.parametrize(
    ("resume", "pause", "largest", "is_allowed"),
    [
        (3_000, 8_000, 100_000, True),
        (0, 1, 1, True),
        (7_999, 8_000, 8_000, True),
        (8_000, 8_000, 100_000, False),
        (9_000, 8_000, 100_000, False),
        (3_000, 8_000, 7_999, False),
    ],
)
def test_thresholds_keep_their_order(resume: int, pause: int, largest: int, is_allowed: bool) -> None:
    flags = {"queue_resume_threshold": resume, "queue_pause_threshold": pause, "queue_max_size": largest}
    if is_allowed:
        assert _loaded(**flags).queue_pause_threshold == pause
        return
    with pytest.raises(InvalidSettingError, match=rf"got {resume}, {pause}, {largest}") as refused:
        _loaded(**flags)
    assert "queue_resume_threshold < queue_pause_threshold <= queue_max_size" in str(refused.value)


def test_the_first_pause_is_no_longer_than_the_longest() -> None:
    with pytest.raises(InvalidSettingError, match=r"error_pause_s must be <= max_pause_s \(got 900, 60\)"):
        _loaded(max_pause_s=60)
    assert _loaded(max_pause_s=900).max_pause_s == 900


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_evaluation_workers", 0),
        ("num_evaluation_workers", 2.5),
        ("num_evaluation_workers", "many"),
        ("low_sample_multiplier", 0.5),
        ("low_sample_multiplier", math.nan),
        ("low_sample_multiplier", math.inf),
        ("low_sample_threshold", -1),
        ("batch_size", 0),
        ("batch_flush_interval", -1),
        ("batch_flush_interval", math.inf),
        ("sink_batch_size", 0),
        ("sink_max_wait", 0),
        ("sink_max_wait", math.nan),
        ("catch_up_horizon_s", -1),
        ("roster_refresh_s", 0),
        ("error_threshold", 0),
        ("error_pause_s", 0),
        ("request_timeout_s", 0),
        ("request_attempts", 21),
        ("monitor_port", 65_536),
        ("streaming", "perhaps"),
        ("campaign", ""),
        ("campaign", ".."),
        ("campaign", "a b"),
        ("campaign", "../main"),
        ("campaign", "x" * 201),
        ("store", ""),
    ],
)
def test_an_impossible_value_is_refused_with_its_name_and_its_value(name: str, value: object) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        _loaded(**{name: value})
    message = str(refused.value)
    assert name in message
    assert " flag" not in message  # it was given to the command, or to the call, that says so
    assert "headgate config show" in message
    if len(str(value)) < 20:
        assert repr(value) in message


def test_several_impossible_values_are_told_together() -> None:
    with pytest.raises(InvalidSettingError) as refused:
        _loaded(batch_size=0, sink_batch_size=0)
    assert str(refused.value).count("batch_size must be greater than or equal to 1 (got 0)") == 2
    assert "sink_batch_size must" in str(refused.value)


def test_a_setting_whose_option_is_called_otherwise_is_named_by_both() -> None:
    with pytest.raises(InvalidSettingError, match=r"num_evaluation_workers \(--workers\) must be greater than"):
        _loaded(num_evaluation_workers=0)


@pytest.mark.parametrize("campaign", ["main", "acme/nightly:2026-01", "a+b@c"])
def test_a_usable_campaign_name_is_kept(campaign: str) -> None:
    assert _loaded(campaign=campaign).campaign == campaign


def test_settings_cannot_be_changed_after_they_were_checked() -> None:
    settings = _loaded()
    with pytest.raises(ValueError, match="frozen"):
        settings.batch_size = 0


def test_agentgym_servers_are_written_as_pairs() -> None:
    settings = _loaded(agentgym_servers=" sciworld=http://127.0.0.1:1, webshop=https://shop/?a=b ,")
    assert settings.agentgym_servers == {"sciworld": "http://127.0.0.1:1", "webshop": "https://shop/?a=b"}


@pytest.mark.parametrize("text", ["sciworld", "sciworld=127.0.0.1:1", "=", "sciworld="])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="agentgym_servers"):
        _loaded(agentgym_servers=text)


def test_servers_are_shown_without_their_keys() -> None:
    loaded = load_settings({"agentgym_servers": "sciworld=http://me:hunter2@host:1"}, environ={})
    (shown,) = [value for name, value, _ in loaded.rows() if name == "agentgym_servers"]
    assert shown.startswith("sciworld=http://")
    assert "hunter2" not in shown
