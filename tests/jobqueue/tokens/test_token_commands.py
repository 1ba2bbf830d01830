"""`headgate jobqueue token …`: what is printed where, and what it does to a server that runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from headgate.core.audit import audit_entries
from headgate.core.errors import HeadgateError, InvalidInputError, NotFoundError
from headgate.net.authority import Authority, Caller
from headgate.net.token_stores import open_tokens
from headgate.net.tokens import Refusal, Scope, parsed
from tests.jobqueue.tokens.conftest import identified


@dataclass
class Said:
    """What a command printed."""

    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out.removesuffix("\n")

    @property
    def token_id(self) -> str:
        parts = parsed(self.text)
        assert parts is not None
        return parts.token_id


Command = Callable[..., Said]


def _run(*arguments: str) -> None:
    app = App(name="token", result_action="return_value")
    for name, function in {"create": "create", "list": "list_", "rotate": "rotate", "revoke": "revoke"}.items():
        app.command(f"headgate.cli.jobqueue.tokens:{function}", name=name)
    assert app(arguments, exit_on_error=False, print_error=False) == 0


@pytest.fixture
def command(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `headgate jobqueue token` with these arguments on an empty database."""
    monkeypatch.setenv("HEADGATE_JOBQUEUE_DATABASE", database_url)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        _run(*arguments)
        return Said(*capsys.readouterr())

    return run


@pytest.fixture
def authority(command: Command, database_url: str) -> Iterator[Authority]:
    """A server's authority that takes everything in memory for too old, and so reads at every request."""
    ticks = iter(range(0, 10**9, 10))
    opened = Authority(open_tokens(database_url), rate=None, monotonic=lambda: float(next(ticks)) / 4)
    yield opened
    opened.close()


def _reason(authority: Authority, text: str) -> Refusal | None:
    verdict = identified(authority, text, time.time())
    return None if isinstance(verdict, Caller) else verdict.reason


def test_create_prints_the_token_and_nothing_else_to_standard_output(command: Command) -> None:
    said = command("create", "lab", "--scopes", "claim,complete")
    assert said.out == said.text + "\n"
    assert parsed(said.text) is not None
    assert said.token_id in said.err
    assert said.text not in said.err


def test_what_is_created_is_what_the_server_sees(command: Command, authority: Authority) -> None:
    flags = ("--scopes", "claim, complete", "--team", "a", "--team", "b", "--worker", "w-1", "--expires", "30d")
    said = command("create", "lab", *flags, "--pool", "arms", "--most-priority", "7")
    now = time.time()
    assert identified(authority, said.text, now) == Caller(
        said.token_id,
        "lab",
        frozenset({Scope.CLAIM, Scope.COMPLETE}),
        frozenset({"a", "b"}),
        frozenset({"arms"}),
        7,
        "w-1",
    )
    assert isinstance(identified(authority, said.text, now + 29.9 * 86400), Caller)
    assert not isinstance(identified(authority, said.text, now + 30 * 86400), Caller)


def test_rotate_gives_a_new_secret_and_lets_the_old_one_overlap(command: Command, authority: Authority) -> None:
    first = command("create", "lab", "--scopes", "read")
    second = command("rotate", "lab", "--overlap", "1h")
    assert (second.token_id, second.text != first.text) == (first.token_id, True)
    assert [_reason(authority, said.text) for said in (first, second)] == [None, None]
    third = command("rotate", first.token_id, "--overlap", "0")
    assert _reason(authority, first.text) is Refusal.UNKNOWN
    assert _reason(authority, second.text) is Refusal.ROTATED
    assert _reason(authority, third.text) is None


def test_rotate_can_prolong_a_token(command: Command, authority: Authority) -> None:
    command("create", "lab", "--scopes", "read", "--expires", "60s")
    said = command("rotate", "lab", "--expires", "2h")
    assert isinstance(identified(authority, said.text, time.time() + 7000), Caller)


def test_revoke_ends_a_token_for_servers_that_run(command: Command, authority: Authority) -> None:
    said = command("create", "lab", "--scopes", "read")
    assert _reason(authority, said.text) is None
    assert command("revoke", "lab").out == ""
    assert _reason(authority, said.text) is Refusal.REVOKED


def test_the_audit_trail_has_what_was_done_to_tokens_and_no_secret(command: Command, audit_file: Path) -> None:
    texts = [
        command("create", "lab", "--scopes", "claim", "--team", "a").text,
        command("rotate", "lab", "--overlap", "2h").text,
    ]
    command("revoke", "lab")
    entries = list(audit_entries())
    token_id = texts[0][4:16]
    assert [(entry.what, entry.thing) for entry in entries] == [
        (f"jobqueue token {what}", f"lab ({token_id})") for what in ("create", "rotate", "revoke")
    ]
    assert entries[0].after == "claim for a, on servers of a, priority 0 at most"
    assert "its old secret until" in entries[1].after
    assert not any(text.partition(".")[2] in audit_file.read_text() for text in texts)


def test_list_says_what_each_token_allows(command: Command) -> None:
    lab = command("create", "lab", "--scopes", "claim,complete", "--team", "b", "--team", "a", "--worker", "w")
    command("rotate", "lab")
    ci = command("create", "ci", "--scopes", "submit", "--expires", "12h")
    command("revoke", "ci")
    documents = json.loads(command("list", "--json").out)
    keys = ("id", "name", "scopes", "teams", "pools", "most_priority", "worker", "state")
    shown: list[Any] = [[document[key] for key in keys] for document in documents]
    assert shown == [
        [lab.token_id, "lab", ["claim", "complete"], ["a", "b"], ["a", "b"], 0, "w", "valid"],
        [ci.token_id, "ci", ["submit"], None, None, None, None, "revoked"],
    ]
    assert all(documents[0][key] for key in ("created_at", "rotated_at", "old_secret_until"))
    assert all(documents[1][key] for key in ("created_at", "expires_at", "revoked_at"))
    table = command("list").out
    assert all(word in table for word in ("2 tokens", lab.token_id, "a, b", "every", "its old secret until", "revoked"))


def test_no_secret_and_no_hash_shows_anywhere_but_on_standard_output_once(
    command: Command, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    first = command("create", "lab", "--scopes", "read")
    second = command("rotate", "lab")
    said = [command("list"), command("list", "--json"), command("revoke", "lab"), command("list")]
    shown = first.err + second.err + caplog.text + "".join(one.out + one.err for one in said)
    store = open_tokens(database_url)
    (token,) = store.tokens()
    store.close()
    for secret in (first.text, second.text, token.digest, token.previous_digest):
        assert secret.rpartition(".")[2] not in shown


def test_a_name_that_several_tokens_have_is_asked_back(command: Command) -> None:
    first, second = (command("create", "lab", "--scopes", "read") for _ in range(2))
    with pytest.raises(InvalidInputError, match="2 tokens are called 'lab'") as raised:
        command("revoke", "lab")
    assert first.token_id in raised.value.next_step
    command("revoke", first.token_id)
    assert second.token_id in command("revoke", "lab").err


def test_a_token_that_is_not_there_is_named_without_its_secret(command: Command) -> None:
    said = command("create", "lab", "--scopes", "read")
    for action in ("rotate", "revoke"):
        with pytest.raises(NotFoundError) as raised:
            command(action, said.text)
        assert said.text.rpartition(".")[2] not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("create", "n", "--scopes", "claim,fly"), "there is no scope 'fly'"),
        (("create", "n", "--scopes", " , "), "at least one scope"),
        (("create", "", "--scopes", "read"), "a name must have 1 to 200 characters"),
        (("create", "n", "--scopes", "read", "--expires", "soon"), "--expires takes a time"),
        (("create", "n", "--scopes", "read", "--expires", "30"), "--expires takes a time"),
        (("create", "n", "--scopes", "read", "--expires", "0"), "> 0 s"),
        (("create", "n", "--scopes", "read", "--database", "memory:"), "end with the process"),
        (("rotate", "n", "--overlap", "1 hour"), "--overlap takes a time"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    command: Command, arguments: tuple[str, ...], rule: str
) -> None:
    with pytest.raises(HeadgateError) as raised:
        command(*arguments)
    assert rule in str(raised.value)
    assert json.loads(command("list", "--json").out) == []


def test_commands_and_a_server_work_on_one_database_at_the_same_time(command: Command, authority: Authority) -> None:
    steady = command("create", "steady", "--scopes", "claim").text

    def come_and_go(commander: int) -> None:
        for n in range(8):
            _run("create", f"t{commander}-{n}", "--scopes", "read")
            _run("revoke", f"t{commander}-{n}")

    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(come_and_go, commander) for commander in range(3)]
        while not all(one.done() for one in done):
            assert _reason(authority, steady) is None
        for one in done:
            one.result()
    documents = json.loads(command("list", "--json").out)
    assert sorted(d["state"] for d in documents) == ["revoked"] * 24 + ["valid"]


def test_a_variable_that_is_set_to_nothing_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_JOBQUEUE_DATABASE", "")
    _run("create", "lab", "--scopes", "read")
    assert parsed(capsys.readouterr().out.removesuffix("\n")) is not None
    assert (tmp_path / ".headgate/jobqueue.db").exists()
