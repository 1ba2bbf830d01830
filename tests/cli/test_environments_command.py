"""`headgate environments`, its trial of one episode, and matrices with the baseline agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_a_trial_shows_the_whole_conversation_and_the_score(headgate: Command) -> None:
    said = headgate("environments", "try", "headgate:tables", "--index", "3")
    assert said.status == 0
    for part in (
        "── user",
        "A table of",
        "── assistant",
        "<tool_call>",
        "<tool_response>",
        "score 1 (success)",
        "2 replies",
    ):
        assert part in said.out


def test_a_trial_as_json_has_every_message(headgate: Command) -> None:
    said = headgate("environments", "try", "affine:sat", "--model", "baseline-greedy", "--json")
    assert said.status == 0
    assert [message["role"] for message in said.document["messages"]] == ["user", "assistant"]
    assert said.document["model"] == "baseline-greedy@main"
    assert said.document["score"] in {0.0, 1.0}


def test_a_trial_of_a_judged_environment_shows_what_a_judge_would_be_asked(headgate: Command) -> None:
    said = headgate("environments", "try", "headgate:explain")
    assert said.status == 0
    heading, _, asked = said.out.partition("── a judge would be asked\n")
    assert heading
    assert "no score here, a judge gives it: `headgate judge` runs it with one" in asked
    assert "1 reply, " in asked
    assert "\\n" not in asked, "its lines are lines"


def test_a_trial_of_a_model_that_cannot_be_reached_says_so_and_has_no_score(headgate: Command, roster: Path) -> None:
    chosen = ("--model", "alpha", "--roster", str(roster), "--set", "request_attempts=1")
    said = headgate("environments", "try", "affine:sat", *chosen)
    assert said.status == 3
    assert "error (connection)" in said.out
    assert "no score" in said.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("affine:sta",), "did you mean 'affine:sat'"),
        (("affine:sat", "--index", "-1"), "affine:sat has the tasks 0 to 999999 (got -1)"),
        (("affine:sat", "--index", "1000000"), "affine:sat has the tasks 0 to 999999 (got 1000000)"),
        (("affine:sat", "--model", "gamma", "--roster", "baselines"), "the roster has no model 'gamma'"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_what_there_is(
    headgate: Command, arguments: tuple[str, ...], says: str
) -> None:
    said = headgate("environments", "try", *arguments)
    assert said.status != 0
    assert says in said.err


def test_a_matrix_of_the_baseline_agents_needs_no_endpoint_and_ends_with_their_scores(headgate: Command) -> None:
    chosen = ("--roster", "baselines", "-e", "agentgym:textcraft", "--instances", "3")
    said = headgate("run", *chosen)
    assert said.status == 0
    assert "9 samples, 9 stored" in said.out
    assert "1.00 (3)" in said.out
    again = headgate("run", *chosen)
    assert "0 samples, 0 stored" in again.out, "what is there is not run again"
    assert "1.00 (3)" in again.out


def test_the_mean_cost_of_an_environment_is_what_its_stored_samples_took(headgate: Command) -> None:
    before = {entry["name"]: entry for entry in headgate("environments", "--json").document["environments"]}
    assert (before["affine:sat"]["samples"], before["affine:sat"]["mean_tokens"]) == (0, None)
    assert headgate("run", "--roster", "baselines", "-e", "affine:sat", "--instances", "2").status == 0
    after = {entry["name"]: entry for entry in headgate("environments", "--json").document["environments"]}
    assert after["affine:sat"]["samples"] == 6
    assert after["affine:sat"]["mean_tokens"] > 1_000


def test_a_campaign_may_be_named_by_its_file(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "campaign: small\nroster: baselines\nenvironments: ['affine:sat']\ninstances: 1\n"
    )
    said = headgate("run", "--campaign", "small.yaml")
    assert said.status == 0
    assert said.out.startswith("small  stopped")
    assert "3 samples, 3 stored" in said.out


def test_two_files_of_settings_are_refused(headgate: Command) -> None:
    said = headgate("run", "--campaign", "a.yaml", "--config", "b.yaml")
    assert said.status == 2
    assert "--campaign a.yaml and --config b.yaml are two files of settings" in said.err


def test_what_left_samples_without_a_score_is_told_at_the_end(headgate: Command, roster: Path) -> None:
    chosen = ("-e", "affine:sat", "--instances", "1", "--set", "request_attempts=1")
    said = headgate("run", "--roster", str(roster), *chosen)
    assert said.status == 4
    assert "2 without a score: connection, such as" in said.out
    assert headgate("run", "--roster", str(roster), *chosen, "--json").status == 4


def test_a_misspelt_baseline_agent_needs_no_roster_to_be_told(headgate: Command) -> None:
    said = headgate("environments", "try", "affine:sat", "--model", "baseline-solvr")
    assert said.status == 2
    assert "there is no model 'baseline-solvr'; did you mean 'baseline-solver'?" in said.err


def test_a_judge_reads_the_baseline_agents_without_another_endpoint(headgate: Command, endpoint: str) -> None:
    judge = ("--judge-url", endpoint, "--judge-model", "baseline-judge")
    said = headgate("judge", "--roster", "baselines", "-e", "headgate:explain", "--instances", "1", *judge)
    assert said.status == 0
    assert "3 samples, 3 scored" in said.out


def test_a_judge_with_a_rubric_ends_well_when_every_sample_has_a_score(
    headgate: Command, endpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "brief.yaml").write_text("name: brief\ncriteria: [is brief]\n")
    judge = ("--judge-url", endpoint, "--judge-model", "baseline-judge", "--rubric", "brief.yaml")
    said = headgate("judge", "--roster", "baselines", "-e", "affine:sat", "--instances", "1", *judge)
    assert "3 samples, 3 scored" in said.out
    assert said.status == 0, "what is counted are the environments under the rubric"


def test_a_judge_that_cannot_be_reached_is_told_at_the_end_and_in_the_status(headgate: Command) -> None:
    judge = ("--judge-url", "http://127.0.0.1:9/v1", "--judge-model", "nobody", "--set", "request_attempts=1")
    chosen = ("judge", "--roster", "baselines", "-e", "headgate:explain", "--instances", "1", *judge)
    said = headgate(*chosen, "--set", "early_stop=false")
    assert said.status == 4
    assert "without a score: judge, such as" in said.out
    assert headgate(*chosen, "--set", "early_stop=false", "--json").status == 4
