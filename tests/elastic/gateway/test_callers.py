"""Who may call a gateway, and who may steer its pool."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headgate.core import Secret, redacted
from headgate.core.errors import InvalidSettingError, UnauthorizedError
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway.callers import Caller, Callers
from headgate.elastic.gateway.errors import ForbiddenError, MisdirectedError
from headgate.elastic.gateway.settings import GatewaySettings

LOCAL = {"Host": "127.0.0.1:8080"}
TOKENS = Callers({"alice": Secret("alice-token")}, {"root": Secret("root-token")})


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Host": "pool.example", **more}


def test_a_token_has_the_name_that_it_was_given() -> None:
    assert TOKENS.caller(bearer("alice-token")) == Caller("alice", may_steer=False)


def test_only_an_operator_may_steer_where_there_are_operators() -> None:
    assert TOKENS.operator(bearer("root-token")).name == "root"
    with pytest.raises(ForbiddenError):
        TOKENS.operator(bearer("alice-token"))


def test_whoever_may_ask_may_steer_where_there_are_no_operators() -> None:
    assert Callers({"alice": Secret("alice-token")}, {}).operator(bearer("alice-token")).name == "alice"


def test_a_browser_gives_the_token_as_its_password() -> None:
    given = base64.b64encode(b"anything:alice-token").decode()

    assert TOKENS.caller({"Authorization": f"Basic {given}"}).name == "alice"


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), {"Authorization": "Basic ???"}, {"Authorization": "alice-token"}], ids=repr
)
def test_a_request_without_a_valid_token_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnauthorizedError) as refused:
        TOKENS.caller(headers | LOCAL)
    assert redacted(refused.value.next_step) == refused.value.next_step, "advice is no secret"


def test_without_tokens_everybody_of_this_machine_may_call_and_any_token_is_as_good_as_none() -> None:
    nobody = Callers({}, {})

    assert nobody.caller(LOCAL | {"Authorization": "Bearer none"}) == Caller("", may_steer=True)
    assert nobody.caller({"Host": "[::1]:1"}).may_steer
    assert nobody.caller({"Host": "localhost"}).may_steer


def test_without_tokens_a_name_of_another_host_is_not_answered() -> None:
    with pytest.raises(MisdirectedError, match=r"evil\.example"):
        Callers({}, {}).caller({"Host": "evil.example"})


def test_a_page_of_another_site_may_not_steer() -> None:
    with pytest.raises(ForbiddenError, match="another site"):
        TOKENS.operator(bearer("root-token", **{"Sec-Fetch-Site": "cross-site"}))


@pytest.mark.parametrize("settings", [{"tokens_env": "A"}, {"tokens_env": {"alice": "A"}}], ids=["one", "named"])
def test_tokens_come_from_the_variables_that_are_named(settings: dict[str, Any]) -> None:
    callers = Callers.of(GatewaySettings(host="0.0.0.0", **settings), {"A": "alice-token"})

    assert callers.caller(bearer("alice-token"))


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(InvalidElasticError, match=r"gateway\.tokens_env names the environment variable A"):
        Callers.of(GatewaySettings(tokens_env={"alice": "A"}), {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "pool.example"])
def test_a_gateway_without_tokens_listens_on_this_machine_only(host: str) -> None:
    with pytest.raises(InvalidSettingError, match="without a token"):
        Callers.of(GatewaySettings(host=host), {})
