"""LiteLLM's real router beside the limit laws. Its own test runs where LITELLM_COMMAND names its program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headgate_bench.rated_provider import rated_case
from headgate_bench.rivals.litellm_router import SETUPS, VARIABLE, litellm_process, python_of_litellm
from headgate_bench.scenarios.limit import LimitParameters, _routers
from headgate_bench.token_rates import LiteLLMRule, play_rated

NAMES = [setup.name for setup in SETUPS]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no program of LiteLLM")
def test_the_real_router_gets_what_its_rule_written_anew_gets_and_the_same_again() -> None:
    case = rated_case("S6", 90.0)
    rule = play_rated(case, lambda _: LiteLLMRule(case, 100), seed=3)
    python = python_of_litellm()
    assert python is not None
    with litellm_process(python) as litellm:
        played, again = (litellm.play(SETUPS[0], case, seed=3) for _ in range(2))
    assert played == again, "it runs in simulated time"
    assert played.record.lost == 0
    assert played.given_up > 0, "it fails what is beyond its counters"
    assert played.record.goodput == pytest.approx(rule.goodput, rel=0.15)
    assert played.record.refused_share == pytest.approx(rule.refused_share, abs=0.15)


def test_without_the_variable_the_row_says_how_it_is_made_to_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "/nowhere/litellm"):
        monkeypatch.setenv(VARIABLE, name)
        routers = _routers(LimitParameters(), 1)
        assert (routers.rows, routers.notes) == ([], [])
        for case, figure in (("S6", "tokens"), ("S7", "unfair"), ("S8", "refused")):
            (said,) = routers.beside(case, figure).values()
            assert f"set {VARIABLE} to the program litellm" in str(said)


def test_a_program_that_is_not_litellm_is_told_and_the_scenario_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "litellm"
    program.touch(0o755)
    (tmp_path / "python").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv(VARIABLE, str(program))
    failed = "failed: ModuleNotFoundError: No module named 'litellm'"
    assert _routers(LimitParameters(), 1).beside("S6", "tokens") == dict.fromkeys(NAMES, failed)
