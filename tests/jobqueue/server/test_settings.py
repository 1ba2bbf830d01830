"""Settings of the server: flag > environment > default."""

from __future__ import annotations

import pytest

from headgate.core.errors import InvalidSettingError
from headgate.jobqueue.server import ServerSettings, load_server_settings
from headgate.net.hosts import is_loopback
from headgate.net.refusals import check_binding


def test_a_flag_wins_over_a_variable_and_that_over_the_default() -> None:
    environ = {"HEADGATE_JOBQUEUE_PORT": "9000", "HEADGATE_JOBQUEUE_HOST": "::1", "PATH": "/bin"}
    loaded = load_server_settings({"port": 9001, "host": None}, environ=environ)
    assert (loaded.port, loaded.host, loaded.body_bytes) == (9001, "::1", 1024**2)


def test_variables_of_clients_are_left_to_them() -> None:
    environ = {"HEADGATE_JOBQUEUE_URL": "http://x", "HEADGATE_JOBQUEUE_TOKEN": "hgq_", "HEADGATE_JOBQUEUE_PORT": ""}
    assert load_server_settings(environ=environ) == ServerSettings()


def test_an_unknown_variable_names_the_nearest_one() -> None:
    with pytest.raises(InvalidSettingError, match="did you mean 'HEADGATE_JOBQUEUE_RATE_PER_S'"):
        load_server_settings(environ={"HEADGATE_JOBQUEUE_RATE_PERS": "1"})
    with pytest.raises(InvalidSettingError, match="did you mean 'port'"):
        load_server_settings({"prot": 1}, environ={})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PORT", "70000"), ("STOP_S", "-1"), ("RATE_PER_S", "nan"), ("HEALTH_CHECK_EVERY_S", "often")],
)
def test_a_wrong_value_is_shown_with_its_origin(variable: str, value: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"{value}.*env HEADGATE_JOBQUEUE_{variable}"):
        load_server_settings(environ={f"HEADGATE_JOBQUEUE_{variable}": value})


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in ServerSettings.model_fields.values())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("node7", False),
    ],
)
def test_without_tokens_only_this_machine_is_served(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    check_binding(host, "a server", is_guarded=True, next_step="Make a token.")
    if loopback:
        check_binding(host, "a server", is_guarded=False, next_step="Make a token.")
    else:
        with pytest.raises(InvalidSettingError, match=f"'{host}'.*Make a token"):
            check_binding(host, "a server", is_guarded=False, next_step="Make a token.")
