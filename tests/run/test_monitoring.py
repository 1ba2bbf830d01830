"""The monitoring API of a campaign: who may ask it, by tokens that change while it runs."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from headgate.config import Settings
from headgate.core import Secret
from headgate.core.errors import InvalidSettingError
from headgate.core.events import Event, MonitorStarted
from headgate.net import authority
from headgate.net.token_stores import TokenStore, open_tokens
from headgate.net.tokens import Scope, new_token, revoked, rotated
from headgate.run.observers import serve_monitoring
from headgate.telemetry import Questions, new_registry
from tests.telemetry.factories import status


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tokens.db"


@pytest.fixture
def tokens(url: str) -> TokenStore:
    return open_tokens(url)


def _added(tokens: TokenStore, *scopes: Scope, teams: list[str] | None = None) -> tuple[str, Secret]:
    token, text = new_token("someone", scopes, now=time.time(), teams=teams)
    tokens.add(token, forget_before=0)
    return token.token_id, text


async def _serving(stack: AsyncExitStack, **settings: object) -> str:
    said: list[Event] = []
    questions = Questions(None, None, None, None, None)  # type: ignore[arg-type]
    chosen = Settings(**{"monitor_port": 0} | settings)
    given = (questions, None, said.append)
    await serve_monitoring(stack, chosen, status, new_registry(status), *given)  # type: ignore[arg-type]
    (started,) = said
    assert isinstance(started, MonitorStarted)
    return started.address


async def test_tokens_are_created_rotated_and_revoked_while_it_runs(
    url: str, tokens: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("NEW_TOKEN_S", "REFRESH_S"):
        monkeypatch.setattr(authority, bound, 0.0)
    async with AsyncExitStack() as stack, httpx.AsyncClient() as http:
        address = await _serving(stack, monitor_tokens=url, monitor_token="shared")

        async def ask(text: Secret) -> int:
            headers = {"Authorization": f"Bearer {text.reveal()}"}
            return (await http.get(f"{address}/status", headers=headers)).status_code

        assert (await http.get(f"{address}/status")).status_code == 401
        assert await ask(Secret("shared")) == 200
        token_id, first = _added(tokens, Scope.READ)
        assert await ask(first) == 200
        second: list[Secret] = []

        def change(token: object) -> object:
            changed, text = rotated(token, now=time.time(), overlap_s=0)  # type: ignore[arg-type]
            second.append(text)
            return changed

        tokens.change(token_id, change)  # type: ignore[arg-type]
        assert (await ask(second[0]), await ask(first)) == (200, 401)
        tokens.change(token_id, lambda token: revoked(token, now=time.time()))
        assert await ask(second[0]) == 401


@pytest.mark.parametrize(
    ("scope", "teams", "code"), [(Scope.ADMIN, None, 200), (Scope.CLAIM, None, 403), (Scope.READ, ["a"], 403)]
)
async def test_a_token_needs_the_scope_read_for_all_teams(
    url: str, tokens: TokenStore, scope: Scope, teams: list[str] | None, code: int
) -> None:
    _, text = _added(tokens, scope, teams=teams)
    async with AsyncExitStack() as stack, httpx.AsyncClient() as http:
        address = await _serving(stack, monitor_tokens=url)
        answer = await http.get(f"{address}/status", headers={"Authorization": f"Bearer {text.reveal()}"})
        assert answer.status_code == code


async def test_with_tokens_it_may_listen_beyond_this_machine(url: str) -> None:
    async with AsyncExitStack() as stack:
        assert await _serving(stack, monitor_tokens=url, monitor_host="0.0.0.0")
    with pytest.raises(InvalidSettingError, match="without a token"):
        async with AsyncExitStack() as stack:
            await _serving(stack, monitor_host="0.0.0.0")


async def test_a_certificate_that_is_absent_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="tls_certificate: the file"):
        async with AsyncExitStack() as stack:
            await _serving(stack, tls_certificate=str(tmp_path / "absent.pem"))


async def test_where_its_port_is_taken_a_run_takes_another_one() -> None:
    async with AsyncExitStack() as stack, httpx.AsyncClient() as http:
        first = await _serving(stack)
        port = int(first.rpartition(":")[2])
        second = await _serving(stack, monitor_port=port)
        assert second != first
        for address in (first, second):
            assert (await http.get(f"{address}/health")).status_code == 200


@pytest.mark.parametrize(
    ("chosen", "in_kubernetes", "called"),
    [
        ({}, False, "127.0.0.1"),
        ({"monitor_host": "0.0.0.0", "monitor_token": "t"}, False, "worker-3"),
        ({"monitor_host": "::", "monitor_token": "t"}, True, "10.42.0.17"),
        ({"monitor_host": "0.0.0.0", "monitor_token": "t", "monitor_advertised_host": "fd00::7"}, True, "[fd00::7]"),
    ],
)
async def test_others_are_told_a_host_that_they_reach(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], in_kubernetes: bool, called: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "worker-3")
    monkeypatch.setattr("socket.gethostbyname", {"worker-3": "10.42.0.17"}.__getitem__)
    if in_kubernetes:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.43.0.1")
    said: list[Event] = []
    given = (Questions(None, None, None, None, None), None, said.append)  # type: ignore[arg-type]
    async with AsyncExitStack() as stack:
        made = Settings(**{"monitor_port": 0} | chosen)
        told = await serve_monitoring(stack, made, status, new_registry(status), *given)  # type: ignore[arg-type]
        (started,) = said
        assert isinstance(started, MonitorStarted)
        assert told == f"http://{called}:{started.address.rpartition(':')[2]}"
