"""Settings by environment: a name counts before a pattern, and a longer pattern before a shorter one."""

from __future__ import annotations

import pytest

from headgate.config import Settings, meaningless, value_for
from headgate.core.errors import UnknownEnvironmentError
from headgate.run import rates_of
from headgate.simulation import free_environments

VALUES = {"affine:sat": 1, "affine:*": 2, "reasoning-gym:c*": 3, "*": 4}


@pytest.mark.parametrize(
    ("environment", "value"),
    [("affine:sat", 1), ("affine:sat-hard", 2), ("reasoning-gym:countdown", 3), ("reasoning-gym:maze", 4)],
)
def test_the_value_of_an_environment(environment: str, value: int) -> None:
    assert value_for(VALUES, environment) == value


def test_without_a_pattern_for_all_others_there_may_be_none() -> None:
    assert value_for({"affine:*": 2}, "agentgym:babyai") is None


def test_what_means_no_environment_is_found_but_for_all_others() -> None:
    assert meaningless(VALUES, ["affine:sat", "affine:abd"]) == ["reasoning-gym:c*"]
    assert meaningless(VALUES, []) == ["affine:*", "affine:sat", "reasoning-gym:c*"]


def test_rates_take_patterns() -> None:
    environments = free_environments({"affine:sat": 10.0, "affine:abd": 10.0, "agentgym:babyai": 7.0}, data_length=9)
    assert rates_of(Settings(rates="affine:*=50,affine:sat=5"), environments) == {
        "affine:sat": 5.0,
        "affine:abd": 50.0,
        "agentgym:babyai": 7.0,
    }
    with pytest.raises(UnknownEnvironmentError, match=r"rates names 'textarena:\*'"):
        rates_of(Settings(rates="textarena:*=5"), environments)
