"""Who may call a gateway, and who may steer its pool."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pytest

from headgate.core import Secret, redacted
from headgate.core.errors import ForbiddenError, InvalidSettingError, MisdirectedError, UnauthorizedError
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway import access
from headgate.elastic.gateway.access import Caller, Callers
from headgate.elastic.gateway.settings import GatewaySettings
from headgate.net import authority
from headgate.net.token_stores import TokenStoreError, open_tokens
from headgate.net.tokens import Scope, Token, new_token, revoked

LOCAL = {"Host": "127.0.0.1:8080"}
TOKENS = Callers({"alice": Secret("alice-token")}, {"root": Secret("root-token")})


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Host": "pool.example", **more}


async def test_a_token_has_the_name_that_it_was_given() -> None:
    assert await TOKENS.caller(bearer("alice-token")) == Caller("alice", may_steer=False)


async def test_only_an_operator_may_steer_where_there_are_operators() -> None:
    assert (await TOKENS.operator(bearer("root-token"))).name == "root"
    with pytest.raises(ForbiddenError):
        await TOKENS.operator(bearer("alice-token"))


async def test_whoever_may_ask_may_steer_where_there_are_no_operators() -> None:
    assert (await Callers({"alice": Secret("alice-token")}, {}).operator(bearer("alice-token"))).name == "alice"


async def test_a_browser_gives_the_token_as_its_password() -> None:
    given = base64.b64encode(b"anything:alice-token").decode()

    assert (await TOKENS.caller({"Authorization": f"Basic {given}"})).name == "alice"


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), {"Authorization": "Basic ???"}, {"Authorization": "alice-token"}], ids=repr
)
async def test_a_request_without_a_valid_token_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnauthorizedError) as refused:
        await TOKENS.caller(headers | LOCAL)
    assert redacted(refused.value.next_step) == refused.value.next_step, "advice is no secret"


async def test_without_tokens_everybody_of_this_machine_may_call_and_any_token_is_as_good_as_none() -> None:
    nobody = Callers({}, {})

    assert await nobody.caller(LOCAL | {"Authorization": "Bearer none"}) == Caller("", may_steer=True)
    assert (await nobody.caller({"Host": "[::1]:1"})).may_steer
    assert (await nobody.caller({"Host": "localhost"})).may_steer


async def test_without_tokens_a_name_of_another_host_is_not_answered() -> None:
    with pytest.raises(MisdirectedError, match=r"evil\.example"):
        await Callers({}, {}).caller({"Host": "evil.example"})


@pytest.mark.parametrize("settings", [{"tokens_env": "A"}, {"tokens_env": {"alice": "A"}}], ids=["one", "named"])
async def test_tokens_come_from_the_variables_that_are_named(settings: dict[str, Any]) -> None:
    callers = Callers.of(GatewaySettings(host="0.0.0.0", **settings), {"A": "alice-token"})

    assert await callers.caller(bearer("alice-token"))


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(InvalidElasticError, match=r"gateway\.tokens_env names the environment variable A"):
        Callers.of(GatewaySettings(tokens_env={"alice": "A"}), {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "pool.example"])
def test_a_gateway_without_tokens_listens_on_this_machine_only(host: str) -> None:
    with pytest.raises(InvalidSettingError, match="without a token"):
        Callers.of(GatewaySettings(host=host), {})


async def test_tokens_of_a_database_have_scopes_and_end_while_the_gateway_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("NEW_TOKEN_S", "REFRESH_S"):
        monkeypatch.setattr(authority, bound, 0.0)
    url = f"sqlite:///{tmp_path}/tokens.db"
    callers, store = Callers.of(GatewaySettings(host="0.0.0.0", tokens=url), {}), open_tokens(url)

    async def may(text: Secret, scope: Scope) -> bool:
        try:
            found = await callers.caller(bearer(text.reveal()), scope)
        except ForbiddenError:
            return False
        return found.may_steer if scope is Scope.ADMIN else True

    made = {}
    for name, scopes, teams in (
        ("asks", [Scope.SUBMIT], None),
        ("sees", [Scope.READ], None),
        ("steers", [Scope.ADMIN], None),
        ("works", [Scope.CLAIM], None),
        ("team", [Scope.SUBMIT, Scope.READ], ["a"]),
    ):
        token, made[name] = new_token(name, scopes, now=time.time(), teams=teams)
        store.add(token, forget_before=0)
    scopes = (Scope.SUBMIT, Scope.READ, Scope.ADMIN)
    allowed = {
        name: "".join([scope.value[0] for scope in scopes if await may(text, scope)]) for name, text in made.items()
    }
    assert allowed == {"asks": "s", "sees": "r", "steers": "sra", "works": "", "team": "s"}
    assert (await callers.operator(bearer(made["steers"].reveal()))).name == "steers"
    with pytest.raises(ForbiddenError):
        await callers.operator(bearer(made["asks"].reveal()))
    for token in store.tokens():
        store.change(token.token_id, lambda token: revoked(token, now=time.time()))
    with pytest.raises(UnauthorizedError):
        await may(made["steers"], Scope.SUBMIT)
    callers.close()
    store.close()


async def test_tokens_that_cannot_be_read_at_present_are_no_wrong_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def tokens(self) -> list[Token]:
            raise TokenStoreError("the database does not answer")

        def close(self) -> None:
            """Give nothing up."""

    monkeypatch.setattr(access, "open_tokens", lambda _: Silent())
    callers = Callers.of(GatewaySettings(tokens=f"sqlite:///{tmp_path}/tokens.db"), {})
    with pytest.raises(TokenStoreError, match="cannot be read at present") as refused:
        await callers.caller(bearer("hgq_1234567890abcdef.secret"))
    assert refused.value.http_status == 503
    callers.close()
