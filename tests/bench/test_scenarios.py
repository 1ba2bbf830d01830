"""Each scenario, tiny: what it prints, what it leaves behind, and that a missed bar is reported as missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate_bench import scenario_names
from tests.bench.tiny import EASY, HARD, TINY, bench


def test_every_scenario_has_a_tiny_form() -> None:
    assert set(TINY) == set(EASY) == set(HARD) == set(scenario_names())


LONG = ("console", "day", "hostile", "placement", "prefect", "scaleout")
"""Scenarios whose servers, days and processes take seconds at least; what they measure has tests of its own."""


SHORT = {
    "elastic": ("rivals=clairvoyant", "frontiers=predictive"),
    "jobqueue": ("parts=flat",),
    "utilisation": ("rivals=false",),
}
"""What is left of scenarios whose rivals and workers take seconds each; the rest is `long`."""

FORMS = [
    *(pytest.param(name, SHORT.get(name, ()), id=name) for name in sorted(TINY) if name not in LONG),
    *(pytest.param(name, (), id=f"{name}, whole", marks=pytest.mark.long) for name in (*LONG, *SHORT)),
]


@pytest.mark.parametrize(("name", "short"), FORMS)
def test_a_scenario_that_meets_its_bars_ends_well_and_leaves_an_artifact(
    name: str, short: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, printed = bench(capsys, tmp_path, name, *TINY[name], *EASY[name], *short)
    assert [bar["id"] for bar in printed["bars"] if not bar["met"]] == []
    assert status == 0
    assert printed["scenario"] == name
    for bar in printed["bars"]:
        assert set(bar) == {"id", "what", "value", "unit", "bar", "side", "met", "beside"}
        assert isinstance(bar["value"], int | float)
    artifact = json.loads(Path(printed["artifact"]).read_text())
    assert artifact["bars"] == printed["bars"]
    assert artifact["scenario"] == name
    assert artifact["seed"] == 3
    assert artifact["samples"], "what each iteration measured"
    assert artifact["parameters"], "with which parameters"
    assert set(artifact["machine"]) >= {"cpu", "cores", "kernel", "load_before", "load_after"}
    assert set(artifact["versions"]) >= {"headgate", "python", "polars", "aiohttp"}
    assert all(set(spread) == {"median", "low", "high", "count"} for spread in artifact["ratios"].values())
    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {Path(path) for path in (printed["artifact"], *printed["files"])}, "working files are gone"


@pytest.mark.long
@pytest.mark.parametrize("name", ["queue", "environments"])
def test_a_missed_bar_is_reported_as_missed_and_ends_with_4(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, printed = bench(capsys, tmp_path, name, *TINY[name], *EASY[name], HARD[name])
    assert status == 4
    assert 1 <= [bar["met"] for bar in printed["bars"]].count(False) < len(printed["bars"])


@pytest.mark.long
def test_a_day_of_one_model_has_its_daily_rate_in_every_environment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, printed = bench(capsys, tmp_path, "day", "models=1", "compared_s=600")
    whole = json.loads(Path(printed["artifact"]).read_text())["samples"][0]
    assert whole["by_environment"]["affine:sat"]["highest"] in {99, 100, 101}
    assert whole["by_environment"]["agentgym:babyai"]["highest"] in {119, 120, 121}
    assert whole["by_environment"]["agentgym:sciworld"]["highest"] in {79, 80, 81}


@pytest.mark.long
def test_killed_writers_have_promises_to_be_held_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = (*TINY["store"], *EASY["store"], "rows=300", "kills=3", "longest_s=0.6")
    _, printed = bench(capsys, tmp_path, "store", *changes)
    tolls = [s for s in json.loads(Path(printed["artifact"]).read_text())["samples"] if "kills" in s]
    assert sum(toll["kills"] for toll in tolls) == 3
    assert all(toll["rows"] >= toll["accepted"] for toll in tolls)


@pytest.mark.long
def test_the_provider_counts_what_ours_and_the_rival_asked_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, printed = bench(capsys, tmp_path, "utilisation", *TINY["utilisation"])
    (bar,) = printed["bars"]
    samples = {s["contender"]: s for s in json.loads(Path(printed["artifact"]).read_text())["samples"]}
    assert samples["headgate"]["answered"] > 0
    assert samples["headgate"]["refused"] == 0, "as many workers as slots: nothing is ever refused"
    assert samples["batch rounds"]["answered"] % 8 == 0, "whole rounds of 4 models in 2 environments"
    assert bar["beside"]["batch rounds"] == samples["batch rounds"]["utilisation"]
    assert bar["beside"]["rounds of one task per slot, in theory"] < 0.6
