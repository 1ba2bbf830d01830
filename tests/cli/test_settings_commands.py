"""`headgate config`, `models`, `environments` and `plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import setting_fields
from tests.cli.conftest import Command


def test_config_show_lists_every_setting_with_its_origin(headgate: Command, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("queue_max_size: 9000\n")
    monkeypatch.setenv("SINK_BATCH_SIZE", "7")
    said = headgate("config", "show", "--config", "settings.yaml", "--workers", "3", "--json")
    assert said.status == 0
    assert set(said.document) == set(setting_fields())
    assert said.document["queue_max_size"] == {"value": "9000", "from": "file settings.yaml"}
    assert said.document["sink_batch_size"] == {"value": "7", "from": "env SINK_BATCH_SIZE"}
    assert said.document["num_evaluation_workers"] == {"value": "3", "from": "flag"}
    assert said.document["batch_size"]["from"] == "default"


def test_secrets_are_masked_in_config_show(headgate: Command, monkeypatch) -> None:
    monkeypatch.setenv("HEADGATE_MONITOR_TOKEN", "very-secret-token")
    said = headgate("config", "show")
    assert said.status == 0
    assert "very-secret-token" not in said.out
    assert "monitor_token" in said.out


def test_config_check_names_models_rates_and_environments(headgate: Command, roster: Path) -> None:
    said = headgate(
        "config", "check", "--roster", str(roster), "-e", "affine:sat", "--set", "rates=affine:sat=50", "--json"
    )
    assert said.status == 0
    assert said.document == {"models": 2, "rates": {"affine:sat": 50.0}, "deployments": []}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--set", "rates=affine:sat=0"), "invalid_setting", "0 < rate|> 0"),
        (("--set", "rates=affine:sat=-1"), "invalid_setting", "-1"),
        (("--set", "rates=affine:sat=nan"), "invalid_setting", "nan"),
        (("--set", "rates=affine:sat=1e9"), "invalid_setting", "1e+09"),
        (("--set", "queue_resume_threshold=9000"), "invalid_setting", "9000"),
        (("--set", "quue_max_size=1"), "invalid_setting", "queue_max_size"),
        (("--set", "queue_max_size"), "invalid_setting", "name=value"),
        (("-e", "affine:sta"), "unknown_environment", "affine:sat"),
        (("--roster", "missing.yaml"), "invalid_roster", "missing.yaml"),
    ],
)
def test_each_wrong_input_gets_one_sentence_with_its_value(
    headgate: Command, roster: Path, arguments: tuple[str, ...], code: str, words: str
) -> None:
    chosen = arguments if "--roster" in arguments else ("--roster", str(roster), *arguments)
    said = headgate("config", "check", *chosen)
    assert said.status == 2, said.err
    assert f"[{code}]" in said.err
    assert any(word in said.err for word in words.split("|")), said.err
    assert "Traceback" not in said.err


def test_an_error_is_a_document_when_json_is_asked_for(headgate: Command) -> None:
    said = headgate("models", "--roster", "missing.yaml", "--json")
    assert said.status == 2
    assert said.document["error"]["code"] == "invalid_roster"
    assert said.document["error"]["next_step"]


def test_models_lists_the_roster_without_keys(headgate: Command, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", "sk-not-to-be-shown-1234")
    (tmp_path / "r.yaml").write_text("models:\n  - {name: a, base_url: 'http://h.example/v1', api_key: 'env:MY_KEY'}\n")
    said = headgate("models", "--roster", "r.yaml")
    assert said.status == 0
    assert "yes" in said.out
    assert "sk-not-to-be-shown" not in said.out + said.err


def test_environments_lists_rate_and_licence(headgate: Command) -> None:
    said = headgate("environments", "--json")
    assert said.status == 0
    by_name = {entry["name"]: entry for entry in said.document["environments"]}
    assert by_name["affine:sat"]["daily_rate"] == 100
    assert by_name["agentgym:babyai"]["daily_rate"] == 120
    assert by_name["affine:sat"]["licence"]


def test_environments_of_agentgym_servers_are_listed_and_asked_whether_they_answer(
    headgate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_AGENTGYM_SERVERS", "sciworld=http://127.0.0.1:9")
    said = headgate("environments", "--json")
    (sciworld,) = [e for e in said.document["environments"] if e["name"] == "agentgym:sciworld-server"]
    assert (sciworld["daily_rate"], sciworld["data_length"], sciworld["problem"]) == (80, 4_639, None)
    found = {check["check"]: check for check in headgate("doctor", "--json").document}
    assert not found["environments"]["ok"]
    assert "the AgentGym server of sciworld at http://127.0.0.1:9 cannot be reached" in found["environments"]["found"]


def test_a_server_of_what_agentgym_does_not_have_is_refused(headgate: Command) -> None:
    said = headgate("environments", "--set", "agentgym_servers=sciwold=http://127.0.0.1:9")
    assert said.status == 2
    assert "'sciwold', for which AgentGym has no server; did you mean 'sciworld'" in said.err


def test_plan_fits_when_the_workers_carry_the_rates(headgate: Command, roster: Path) -> None:
    said = headgate("plan", "--roster", str(roster), "-e", "affine:sat", "--episode-s", "60", "--json")
    assert said.status == 0
    assert said.document["fits"] is True
    assert said.document["demanded_per_day"] == 200
    assert said.document["is_measured"] == {"affine:sat": False}


def test_plan_says_which_limit_binds_and_exits_with_4(headgate: Command, roster: Path) -> None:
    said = headgate(
        "plan", "--roster", str(roster), "-e", "affine:sat", "--workers", "1", "--set", "rates=affine:sat=100000"
    )
    assert said.status == 4
    assert "does not fit: workers binds" in said.out


def test_an_unknown_option_is_an_input_error(headgate: Command) -> None:
    assert headgate("plan", "--no-such-option").status == 2


def test_help_names_every_command(headgate: Command) -> None:
    from headgate.cli.commands import all_commands

    said = headgate("--help")
    assert said.status == 0
    assert all(name.split()[0] in said.out for name in all_commands())


def test_every_problem_of_a_roster_stands_on_its_own_line(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text('models:\n  - {name: a}\n  - {name: "b\\e[31m", base_url: 3}\n')
    said = headgate("models", "--roster", "bad.yaml")
    assert said.status == 2
    assert said.err.count("\n  entry ") >= 2
    assert "\\n" not in said.err
    assert "\x1b" not in said.err


@pytest.mark.parametrize("seconds", ["0", "-3", "nan"])
def test_a_plan_with_episodes_of_no_length_is_refused(headgate: Command, roster: Path, seconds: str) -> None:
    said = headgate("plan", "--roster", str(roster), f"--episode-s={seconds}")
    assert said.status == 2
    assert f"--episode-s must be > 0 (got {seconds})" in said.err


def test_one_model_is_one_model(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("models:\n  - {name: a, base_url: 'http://h.example/v1'}\n")
    assert "1 model\n" in headgate("models", "--roster", "r.yaml").out
