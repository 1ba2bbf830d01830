from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Settings, load_settings
from headgate.core.errors import InvalidSettingError

FORMER = {
    "reduce_factor": "multiplicative_decrease_factor",
    "additive_increase": "additive_increase_step",
    "success_window": "successes_until_increase",
    "rampup_seconds": "startup_ramp_seconds",
    "ceiling_overshoot": "Leave it out",
    "throttle": "multiplicative_decrease_factor",
    "disable_early_shutdown": "early_stop",
}


def load(**environ: str) -> Settings:
    return load_settings(environ=environ).settings


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("MULTIPLICATIVE_DECREASE_FACTOR", "0", "greater than 0"),
        ("MULTIPLICATIVE_DECREASE_FACTOR", "1", "less than 1"),
        ("MULTIPLICATIVE_DECREASE_FACTOR", "-0.5", "greater than 0"),
        ("MULTIPLICATIVE_DECREASE_FACTOR", "nan", "finite number"),
        ("ADDITIVE_INCREASE_STEP", "0", "greater than or equal to 1"),
        ("SUCCESSES_UNTIL_INCREASE", "0", "greater than or equal to 1"),
        ("COOLDOWN_SECONDS", "0", "greater than 0"),
        ("COOLDOWN_SECONDS", "1e9", "less than or equal to 3600"),
        ("STARTUP_RAMP_SECONDS", "-1", "greater than or equal to 0"),
        ("REQUEST_QUEUE_WAIT_S", "-1", "greater than or equal to 0"),
        ("RETRY_BUDGET", "1.5", "less than or equal to 1"),
        ("RETRY_BUDGET", "nan", "finite number"),
        ("SHUTDOWN_ERROR_RATE", "0", "greater than 0"),
        ("SHUTDOWN_ERROR_WINDOW", "0", "greater than or equal to 1"),
        ("LIMIT_LAW", "vegas", "'adaptive' or 'aimd'"),
    ],
)
def test_a_value_out_of_its_bounds_names_the_setting_the_rule_and_the_value(
    variable: str, value: str, rule: str
) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        load(**{f"HEADGATE_{variable}": value})
    message = str(caught.value)
    assert variable.lower() in message
    assert rule in message
    assert repr(value) in message
    assert f"env HEADGATE_{variable}" in message


@pytest.mark.parametrize(("name", "advice"), FORMER.items())
def test_a_former_name_in_a_file_is_answered_with_the_new_one(tmp_path: Path, name: str, advice: str) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(f"{name}: 0.5\n")
    with pytest.raises(InvalidSettingError, match=f"there is no setting '{name}'.*{advice}"):
        load_settings(environ={}, file=file)


@pytest.mark.parametrize(("name", "advice"), FORMER.items())
def test_a_former_name_as_variable_flag_or_argument_is_answered_with_the_new_one(name: str, advice: str) -> None:
    with pytest.raises(InvalidSettingError, match=advice):
        load(**{f"HEADGATE_{name.upper()}": "0.5"})
    with pytest.raises(InvalidSettingError, match=advice):
        load_settings({name: 0.5}, environ={})
    with pytest.raises(InvalidSettingError, match=advice):
        Settings(**{name: 0.5})


def test_every_name_that_a_former_one_is_answered_with_is_a_setting() -> None:
    for advice in FORMER.values():
        assert advice == "Leave it out" or advice in Settings.model_fields
