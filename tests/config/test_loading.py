"""Where settings come from: flag > environment variable > file > default, and which names they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import LoadedSettings, load_settings, setting_fields, variables_of
from headgate.core.errors import InvalidSettingError

SEED = {
    "DAILY_RATE_PER_ENV": ("daily_rate_per_env", "150", 150.0),
    "LOW_SAMPLE_THRESHOLD": ("low_sample_threshold", "250", 250),
    "LOW_SAMPLE_MULTIPLIER": ("low_sample_multiplier", "4", 4.0),
    "NUM_EVALUATION_WORKERS": ("num_evaluation_workers", "40", 40),
    "QUEUE_MAX_SIZE": ("queue_max_size", "90000", 90_000),
    "QUEUE_WARNING_THRESHOLD": ("queue_warning_threshold", "6000", 6_000),
    "QUEUE_PAUSE_THRESHOLD": ("queue_pause_threshold", "9000", 9_000),
    "QUEUE_RESUME_THRESHOLD": ("queue_resume_threshold", "2000", 2_000),
    "BATCH_SIZE": ("batch_size", "60", 60),
    "BATCH_FLUSH_INTERVAL": ("batch_flush_interval", "45", 45.0),
    "MINER_REFRESH_INTERVAL": ("roster_refresh_s", "700", 700.0),
    "SINK_BATCH_SIZE": ("sink_batch_size", "400", 400),
    "SINK_MAX_WAIT": ("sink_max_wait", "200", 200.0),
    "CHUTES_ERROR_PAUSE_DURATION": ("error_pause_s", "600", 600.0),
    "CHUTES_ERROR_PAUSE_SECONDS": ("error_pause_s", "600", 600.0),
    "CHUTES_ERROR_THRESHOLD": ("error_threshold", "5", 5),
    "MAX_CONSECUTIVE_ERRORS": ("error_threshold", "5", 5),
    "MAX_PAUSE_SECONDS": ("max_pause_s", "7200", 7_200.0),
}


def _written(folder: Path, text: str) -> Path:
    file = folder / "headgate.yaml"
    file.write_text(text)
    return file


def test_every_variable_of_the_seed_works_under_its_three_names() -> None:
    for variable, (name, text, value) in SEED.items():
        for written in (variable, f"AFFINE_{variable}", f"HEADGATE_{variable}"):
            loaded = load_settings(environ={written: text})
            assert getattr(loaded.settings, name) == value, written
            assert loaded.origins[name] == f"env {written}"


@pytest.mark.parametrize("variable", list(SEED))
def test_our_own_name_wins_over_the_seeds_prefix_and_that_over_the_bare_name(variable: str) -> None:
    name, text, value = SEED[variable]
    weak = {"low_sample_multiplier": "2"}.get(name, "1")
    bare = {variable: weak, "AFFINE_" + variable: text}
    assert getattr(load_settings(environ=bare).settings, name) == value
    full = {variable: weak, "AFFINE_" + variable: weak, "HEADGATE_" + variable: text}
    loaded = load_settings(environ=full)
    assert getattr(loaded.settings, name) == value
    assert loaded.origins[name] == f"env HEADGATE_{variable}"


def test_no_two_settings_share_a_variable() -> None:
    variables = [v for name in setting_fields() for v in variables_of(name)]
    assert len(variables) == len(set(variables))
    assert all(any(v.startswith("HEADGATE_") for v in variables_of(name)) for name in setting_fields())


def test_a_flag_wins_over_a_variable_and_that_over_the_file_and_that_over_the_default(tmp_path: Path) -> None:
    file = _written(tmp_path, "batch_size: 10\nsink_batch_size: 11\nnum_evaluation_workers: 12\n")
    loaded = load_settings(
        {"batch_size": 30, "streaming": None},
        environ={"BATCH_SIZE": "20", "HEADGATE_SINK_BATCH_SIZE": "21"},
        file=file,
    )
    found = {name: (getattr(loaded.settings, name), loaded.origins[name]) for name in setting_fields()}
    assert found["batch_size"] == (30, "flag")
    assert found["sink_batch_size"] == (21, "env HEADGATE_SINK_BATCH_SIZE")
    assert found["num_evaluation_workers"] == (12, f"file {file}")
    assert found["streaming"] == (False, "default")


def test_a_flag_may_be_zero_or_false(tmp_path: Path) -> None:
    file = _written(tmp_path, "keep_conversations: true\nlow_sample_threshold: 9\n")
    loaded = load_settings({"keep_conversations": False, "low_sample_threshold": 0}, environ={}, file=file)
    assert loaded.settings.keep_conversations is False
    assert loaded.settings.low_sample_threshold == 0


@pytest.mark.parametrize("name", ["jobqueue_url", "otel_endpoint", "s3_endpoint_url"])
@pytest.mark.parametrize("user", ["worker:wxyz", "wxyz", ":wxyz"])
def test_an_address_that_is_shown_holds_no_password(name: str, user: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"{name} must not contain a user or password") as refused:
        load_settings({name: f"http://{user}@host.example:8000"}, environ={})
    assert "wxyz" not in str(refused.value)
    assert load_settings({name: "http://host.example/a@b?c=@d"}, environ={}).settings


def test_an_empty_variable_is_an_absent_one() -> None:
    loaded = load_settings(environ={"HEADGATE_BATCH_SIZE": "", "BATCH_SIZE": "7"})
    assert (loaded.settings.batch_size, loaded.origins["batch_size"]) == (7, "env BATCH_SIZE")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    file = _written(tmp_path, "campaign: nightly\nrates: {affine:sat: 50}\nenvironments: [affine:sat]\n")
    loaded = load_settings(environ={"HEADGATE_CONFIG": str(file)})
    assert loaded.settings.campaign == "nightly"
    assert loaded.settings.rates == {"affine:sat": 50.0}
    assert loaded.settings.environments == ("affine:sat",)
    assert loaded.origins["campaign"] == f"file {file}"


def test_a_file_that_was_given_wins_over_the_variable(tmp_path: Path) -> None:
    file = _written(tmp_path, "batch_size: 5\n")
    assert load_settings(environ={"HEADGATE_CONFIG": "/nowhere"}, file=file).settings.batch_size == 5


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    loaded = load_settings(environ={}, file=_written(tmp_path, "# nothing yet\n"))
    assert set(loaded.origins.values()) == {"default"}


# Unknown names.


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("HEADGATE_BATCHSIZE", "HEADGATE_BATCH_SIZE"),
        ("HEADGATE_SINK_BATCH_SIZ", "HEADGATE_SINK_BATCH_SIZE"),
        ("HEADGATE_ROOSTER", "HEADGATE_ROSTER"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest_one(variable: str, meant: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"unknown setting '{variable}' .*did you mean '{meant}'"):
        load_settings(environ={variable: "1"})


def test_other_programs_variables_are_their_own_business() -> None:
    environ = {"AFFINE_COLDKEY": "x", "BATCH": "1", "QUEUE_URL": "x", "PATH": "/bin", "HEADGATE_KEY_ACME": "x"}
    environ["HEADGATE_JOBQUEUE_DATABASE"] = "sqlite:///jobs.db"
    environ["HEADGATE_ELASTIC_TOKEN"] = "of a gateway"
    environ["HEADGATE_JOB_FILE"] = "/tmp/job.json"  # a campaign may be what a worker's command runs
    environ["HEADGATE_POSTGRES_BIN"] = "/usr/lib/postgresql/18/bin"
    assert set(load_settings(environ=environ).origins.values()) == {"default"}


def test_an_unknown_key_of_the_file_names_the_file_and_the_nearest_key(tmp_path: Path) -> None:
    file = _written(tmp_path, "batchsize: 3\n")
    with pytest.raises(InvalidSettingError, match=r"unknown setting 'batchsize' \(file .*did you mean 'batch_size'"):
        load_settings(environ={}, file=file)


def test_an_unknown_flag_names_the_nearest_setting() -> None:
    with pytest.raises(InvalidSettingError, match=r"unknown setting 'worker'[;.]"):
        load_settings({"worker": 3}, environ={})


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "7\n", "a: [\n", "a: b: c\n", "\t- x\n", "1: 2\n"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettingError):
        load_settings(environ={}, file=_written(tmp_path, text))


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"gone\.yaml cannot be read"):
        load_settings(environ={}, file=tmp_path / "gone.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InvalidSettingError, match=r"binary\.yaml cannot be read"):
        load_settings(environ={}, file=tmp_path / "binary.yaml")


def test_an_error_in_a_file_says_the_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="line 2"):
        load_settings(environ={}, file=_written(tmp_path, "batch_size: 3\nrates: a: b\n"))


# Secrets.

CANARY = "canary-77d1f0"


def _secretive() -> LoadedSettings:
    return load_settings(
        environ={
            "HEADGATE_MONITOR_TOKEN": CANARY,
            "R2_WRITE_ACCESS_KEY_ID": CANARY,
            "R2_WRITE_SECRET_ACCESS_KEY": CANARY,
            "HEADGATE_ROSTER": f"https://reader:{CANARY}@models.example/roster.json",
        }
    )


def test_rows_show_that_a_secret_is_set_and_not_what_it_is() -> None:
    loaded = _secretive()
    rows = {name: (value, origin) for name, value, origin in loaded.rows()}
    assert rows["monitor_token"] == ("[redacted]", "env HEADGATE_MONITOR_TOKEN")
    assert rows["s3_secret_access_key"] == ("[redacted]", "env R2_WRITE_SECRET_ACCESS_KEY")
    assert rows["roster"][0] == "https://[redacted]@models.example/roster.json"
    assert CANARY not in str(loaded.rows())
    assert CANARY not in repr(loaded.settings.monitor_token)
    assert loaded.settings.monitor_token.get_secret_value() == CANARY


def test_a_secret_that_is_not_set_is_shown_as_empty() -> None:
    rows = {name: value for name, value, _ in load_settings(environ={}).rows()}
    assert rows["monitor_token"] == ""


def test_rows_show_every_setting_as_it_would_be_written() -> None:
    loaded = load_settings({"rates": "a=1.5,b=200", "environments": "a,b"}, environ={})
    rows = {name: value for name, value, _ in loaded.rows()}
    assert list(rows) == list(setting_fields())
    assert (rows["rates"], rows["environments"]) == ("a=1.5,b=200", "a,b")


@pytest.mark.parametrize(
    "text",
    [
        f"monitor_token: [{CANARY}]\n",
        f"s3_secret_access_key: {{key: {CANARY}}}\n",
        f'monitor_token: "{CANARY}\n',
        f"monitor_token: {CANARY}: {CANARY}\n",
        f"monitor_token: {CANARY}\n\tbatch_size: 3\n",
    ],
)
def test_no_error_in_a_file_shows_a_secret_of_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        load_settings(environ={}, file=_written(tmp_path, text))
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
