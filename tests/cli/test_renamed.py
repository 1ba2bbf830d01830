"""Options that had another name still work, and say what they are called now."""

from __future__ import annotations

import pytest

from headgate.cli import build_app
from headgate.cli.renamed import RENAMED, current
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["run", "--environments", "a,b"], ["run", "--environment", "a,b"]),
        (["run", "--environments=a", "--json"], ["run", "--environment=a", "--json"]),
        (["report", "--hours", "24"], ["report", "--since", "24h"]),
        (["report", "--hours=1.5"], ["report", "--since=1.5h"]),
        (
            ["placement", "submit", "--cpu", "2", "--", "x", "--cpu", "3"],
            ["placement", "submit", "--cpus", "2", "--", "x", "--cpu", "3"],
        ),
        (["placement", "status", "--address", "1.2.3.4:6379"], ["placement", "status", "--address", "1.2.3.4:6379"]),
        (["placement", "simulate", "--hours", "2"], ["placement", "simulate", "--hours", "2"]),
        (["jobqueue", "work", "--teams", "a", "--lease", "20"], ["jobqueue", "work", "--team", "a", "--lease-s", "20"]),
        (["jobqueue", "reserve", "--timeout", "9"], ["jobqueue", "reserve", "--timeout-s", "9"]),
        (["leaderboard", "--html"], ["leaderboard", "--output"]),
        (["export", "a.json", "--format", "seed-results"], ["export", "a.json", "--format", "affine-results"]),
        (["import", "a.json", "--format=seed-results"], ["import", "a.json", "--format=affine-results"]),
        (["export", "a.json", "--format=jsonl"], ["export", "a.json", "--format=jsonl"]),
        (["elastic", "replay", "--policy", "seed"], ["elastic", "replay", "--policy", "verl"]),
        (["elastic", "replay", "--seed", "3", "--policy"], ["elastic", "replay", "--seed", "3", "--policy"]),
    ],
)
def test_a_former_name_is_read_as_the_present_one_of_that_command(before: list[str], now: list[str]) -> None:
    found, said = current(before)
    assert found == now
    assert bool(said) == (before != now)


def test_a_former_name_says_the_present_one_and_does_the_same(headgate: Command) -> None:
    said = headgate("plan", "--roster", "baselines", "--environments", "affine:sat")
    assert said.status == 0, said.err
    assert said.err.startswith("--environments is called --environment now\n")
    assert "affine:sat" in said.out


def test_a_former_value_says_the_present_one() -> None:
    assert current(["export", "--format", "seed-summary"])[1] == [
        "--format seed-summary is called --format affine-summary now"
    ]


def _options(words: str) -> set[str]:
    app = build_app()
    for word in words.split():
        app = app[word]
    return {name for argument in app.assemble_argument_collection() for name in argument.names}


def test_every_present_name_is_an_option_of_its_command_and_no_former_one_is() -> None:
    for command, names in RENAMED.items():
        options = _options(command or "run")
        assert {renamed.name for renamed in names.values()} <= options, command
        assert options.isdisjoint(before for before, now in names.items() if now.name != before), command


@pytest.mark.parametrize("command", ["query", "summary", "verify", "compact", "models", "environments"])
def test_a_command_offers_only_what_it_uses(command: str) -> None:
    options = _options(command)
    assert options.isdisjoint({"--workers", "--environment"})
    assert ("--journal" in options) == (command == "models")
    assert ("--roster" in options) == (command == "models")
    assert ("--store" in options) == (command != "models")


def test_a_campaign_s_name_is_refused_where_it_would_choose_nothing(headgate: Command) -> None:
    said = headgate("query", "--campaign", "eight", "select 1")
    assert said.status == 2
    assert "only a YAML file of one makes a difference" in said.err
