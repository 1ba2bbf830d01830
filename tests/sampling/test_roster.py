from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Model, Secret, errors
from headgate.sampling.roster import (
    FileRoster,
    HttpRoster,
    OpenAIRoster,
    Roster,
    StaticRoster,
    roster_source,
)
from headgate.sampling.roster_entries import KeyRules, base_url_problem, read_entries

GOOD = """
defaults:
  base_url: https://models.example.com/v1
  api_key: env:MODEL_KEY
  options: {temperature: 0.7, max_tokens: 100}
models:
  - name: first
  - name: org/second
    revision: "2026-11"
    base_url: http://127.0.0.1:8001/v1/
    model: served-second
    api_key: ""
    uid: 7
    weight: 2
    max_parallel: 16
    options: {temperature: 0, stream: true}
"""
ENVIRON = {"MODEL_KEY": "the-key-of-models"}
URL = "http://127.0.0.1:8001/v1"


def read(*entries: object, environ: dict[str, str] | None = None, **top: object) -> tuple[Model, ...]:
    return read_entries({"models": list(entries), **top}, "roster.yaml", KeyRules(environ or {}))


def said(*entries: object, environ: dict[str, str] | None = None, **top: object) -> str:
    with pytest.raises(errors.InvalidRosterError) as caught:
        read(*entries, environ=environ, **top)
    return str(caught.value)


def entry(**fields: object) -> dict[str, object]:
    return {"name": "m", "base_url": URL} | fields


async def loaded(tmp_path: Path, text: str, name: str = "roster.yaml") -> Roster:
    path = tmp_path / name
    path.write_text(text)
    return await FileRoster(path, environ=ENVIRON).load()


async def test_a_yaml_file_gives_models_with_defaults_merged(tmp_path: Path) -> None:
    first, second = await loaded(tmp_path, GOOD)
    assert first == Model(
        "first",
        base_url="https://models.example.com/v1",
        api_key=Secret("the-key-of-models"),
        uid=0,
        options=(("temperature", 0.7), ("max_tokens", 100)),
    )
    assert second == Model(
        "org/second",
        "2026-11",
        base_url=URL,
        served_name="served-second",
        uid=7,
        weight=2,
        max_parallel=16,
        options=(("temperature", 0), ("max_tokens", 100), ("stream", True)),
    )


async def test_a_json_file_gives_the_same_roster(tmp_path: Path) -> None:
    import yaml

    as_json = json.dumps(yaml.safe_load(GOOD))
    assert await loaded(tmp_path, as_json, "roster.json") == await loaded(tmp_path, GOOD)


async def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "roster.yaml"
    source = FileRoster(path, environ=ENVIRON)
    path.write_text(GOOD)
    assert len(await source.load()) == 2
    path.write_text(GOOD.split("  - name: org/second", maxsplit=1)[0])
    assert len(await source.load()) == 1


@pytest.mark.parametrize("text", ["", "models: []", "models:", "defaults: {weight: 2}", "[]", "3", "{}"])
async def test_a_roster_without_models_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.InvalidRosterError, match="models"):
        await loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("r.yaml", "models: [", "cannot be read"),
        ("r.json", "{", "cannot be read"),
        ("r.yaml", "models:\n  - {name: a, name: b}", "'name' is given twice"),
        ("r.json", '{"models": [], "models": []}', "'models' is given twice"),
        ("r.json", "[" * 100_000, "cannot be read"),
    ],
)
async def test_a_file_that_cannot_be_parsed_says_so_with_its_name(
    tmp_path: Path, name: str, text: str, what: str
) -> None:
    with pytest.raises(errors.InvalidRosterError, match=what) as caught:
        await loaded(tmp_path, text, name)
    assert name in str(caught.value)


async def test_a_file_that_is_absent_or_no_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidRosterError, match="No such file"):
        await FileRoster(tmp_path / "none.yaml").load()
    (tmp_path / "roster.yaml").touch()
    with pytest.raises(errors.InvalidRosterError, match=r"did you mean 'roster.yaml'\?\.? Correct the path\.$"):
        await FileRoster(tmp_path / "rooster.yaml").load()
    (tmp_path / "r.yaml").write_bytes(b"models: \xff\xfe")
    with pytest.raises(errors.InvalidRosterError, match="UTF-8"):
        await FileRoster(tmp_path / "r.yaml").load()


def test_everything_that_is_wrong_is_told_at_once_with_entry_field_value_and_rule() -> None:
    text = said(
        entry(name="a", weight=-1, base_ulr="x"),
        entry(name="b", max_parallel=0),
        entry(name="c", api_key="env:ABSENT", base_url="ftp://host/v1"),
        "nonsense",
        entry(name="no spaces"),
        modles=[],
    )
    assert "roster.yaml: 8 problems:" in text
    for line in (
        "roster: unknown field 'modles'; did you mean 'models'?",
        "entry 1 (a): unknown field 'base_ulr'; did you mean 'base_url'?",
        "entry 1 (a), weight: must be greater than 0 (got -1)",
        "entry 2 (b), max_parallel: must be greater than or equal to 1 (got 0)",
        "entry 3 (c), api_key: environment variable ABSENT is not set",
        "entry 3 (c), base_url: must be http://host/v1 or https://host/v1 (got 'ftp://host/v1')",
        "entry 4: must be a mapping of name and base_url or serve (got 'nonsense')",
        "entry 5 (no spaces): model name 'no spaces' is not a usable name",
    ):
        assert line in text
    assert "headgate models --roster" in text


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "2", True, None])
def test_a_weight_is_a_finite_number_above_zero(weight: object) -> None:
    assert "entry 1 (m), weight" in said(entry(weight=weight))


@pytest.mark.parametrize(("field", "value"), [("uid", -1), ("uid", 1.5), ("uid", "3"), ("max_parallel", True)])
def test_numbers_are_numbers(field: str, value: object) -> None:
    assert f"entry 1 (m), {field}" in said(entry(**{field: value}))


def test_a_missing_field_and_an_unquoted_revision_say_what_to_do() -> None:
    from datetime import date

    text = said({"name": "m", "revision": date(2026, 11, 20)})
    assert "entry 1 (m), base_url: is missing" in text
    assert "entry 1 (m), revision: must be a valid string (got datetime.date(2026, 11, 20)); put it in quotes" in text


def test_two_models_of_one_name_and_revision_are_an_error_and_two_revisions_are_not() -> None:
    assert "has the name and revision m@main of entry 1" in said(entry(), entry())
    assert len(read(entry(), entry(revision="next"))) == 2


def test_two_models_of_one_uid_are_an_error_also_where_one_is_a_position() -> None:
    text = said(entry(name="a", uid=1), entry(name="b"))
    assert "entry 2 (b), uid: 1 is also the uid of entry 1 (a)" in text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models.example.com/v1",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http:///v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://host/v1 ",
        "http://ho\nst/v1",
        "http://user:hunter2secret@host/v1",
        "http://host/v1?key=1",
        "http://host/v1#x",
        "http://host/v1/chat/completions",
        "http://169.254.169.254/v1",
        "http://169.254.7.7:80/v1",
        "http://[fe80::1%25eth0]/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://0xA9FEA9FE/v1",
        "http://2852039166/v1",
        "http://metadata.google.internal/v1",
        "http://METADATA.google.internal./v1",
        "http://100.100.100.200/v1",
        "http://[fd00:ec2::254]/v1",
    ],
)
def test_an_address_that_cannot_be_an_endpoint_is_refused(url: str) -> None:
    problem = base_url_problem(url)
    assert problem
    assert "hunter2secret" not in problem
    assert "base_url" in said(entry(base_url=url))


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "https://h.example/api/openai/v1/", "http://[::1]:80/v1", "http://10.0.0.1/v1"]
)
def test_an_ordinary_address_is_taken(url: str) -> None:
    assert base_url_problem(url) is None


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_has_a_problem(text: str) -> None:
    for url in (text, "http://" + text, f"http://{text}/v1"):
        assert base_url_problem(url) is None or base_url_problem(url)


def test_a_key_in_plain_text_is_refused_without_being_shown() -> None:
    text = said(entry(api_key="plain-secret-value"))
    assert "entry 1 (m), api_key: a key in plain text is refused" in text
    assert "env:NAME or file:/path" in text
    assert "plain-secret-value" not in text
    assert "plain-secret-value" not in said(entry(api_key=["plain-secret-value"]))
    (model,) = read_entries({"models": [entry(api_key="plain-key")]}, "r", KeyRules({}, allow_plain=True))
    assert model.api_key.reveal() == "plain-key"


@pytest.mark.parametrize("value", ["", "two words", "line\nbreak", "schlüssel-ü"])
def test_a_variable_without_a_usable_key_is_named(value: str) -> None:
    text = said(entry(api_key="env:K"), environ={"K": value})
    assert "entry 1 (m), api_key: variable K" in text
    assert "two words" not in text


def test_a_key_comes_from_a_file_with_an_absolute_path(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("key-from-file\n")
    (model,) = read(entry(api_key=f"file:{path}"))
    assert model.api_key.reveal() == "key-from-file"
    assert "No such file" in said(entry(api_key=f"file:{tmp_path}/none"))
    assert "must be absolute" in said(entry(api_key="file:key"))
    path.write_bytes(b"\xff\xfe")
    assert "printable ASCII" in said(entry(api_key=f"file:{path}"))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"model": "x"}, "options.model: is set by Headgate itself"),
        ({"messages": []}, "options.messages: is set by Headgate itself"),
        ({"headgate_task_heade": True}, "did you mean 'headgate_task_header'?"),
        ({"headgate_task_header": "yes"}, "must be true or false (got 'yes')"),
        ({"stream": 1}, "must be true or false (got 1)"),
        ({"when": Path("x")}, "must be a JSON value"),
        ({"temperature": float("nan")}, "must be a JSON value (got nan)"),
        ([1], "options"),
    ],
)
def test_an_option_that_cannot_be_sent_is_refused(options: object, rule: str) -> None:
    assert rule in said(entry(options=options))


def test_the_defaults_are_checked_like_entries() -> None:
    text = said(entry(), defaults={"wieght": 2, "name": "all"})
    assert "defaults: unknown field 'wieght'; did you mean 'weight'?" in text
    assert "defaults: unknown field 'name'" in text
    assert "defaults: must be a mapping" in said(entry(), defaults=[1])


def test_a_list_of_problems_is_cut_and_says_how_many_more_there_are() -> None:
    text = said(*(entry(name=f"m{i}", weight=0) for i in range(300)))
    assert "300 problems" in text
    assert "and 250 more" in text


async def test_a_static_roster_is_what_it_was_made_of_and_never_empty_or_doubled() -> None:
    models = (Model("a", uid=0), Model("b", uid=1))
    assert (await StaticRoster(models).load()).models == models
    for wrong in ([], [Model("a"), Model("a", uid=1)], [Model("a"), Model("b")]):
        with pytest.raises(errors.InvalidRosterError):
            StaticRoster(wrong)


@asynccontextmanager
async def site(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{tail:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_roster_over_http_is_fetched_again_only_when_it_changed() -> None:
    state, statuses = {"etag": '"1"', "models": [entry(name="a")]}, []

    async def handler(request: web.Request) -> web.Response:
        fresh = request.headers.get("If-None-Match") == state["etag"]
        statuses.append(304 if fresh else 200)
        if fresh:
            return web.Response(status=304)
        return web.json_response({"models": state["models"]}, headers={"ETag": str(state["etag"])})

    async with site(handler) as url:
        source = HttpRoster(url + "/roster.json", environ={})
        names = [[model.name for model in await source.load()] for _ in range(2)]
        state.update(etag='"2"', models=[entry(name="b")])
        names.append([model.name for model in await source.load()])
    assert names == [["a"], ["a"], ["b"]]
    assert statuses == [200, 304, 200]


async def test_a_bad_roster_over_http_is_told_again_at_each_refresh() -> None:
    async def handler(request: web.Request) -> web.Response:
        if "If-None-Match" in request.headers:
            return web.Response(status=304)
        return web.json_response({"models": []}, headers={"ETag": '"1"'})

    async with site(handler) as url:
        source = HttpRoster(url, environ={})
        for _ in range(2):
            with pytest.raises(errors.InvalidRosterError, match="at least one entry"):
                await source.load()


async def test_a_roster_from_elsewhere_may_name_no_file_and_no_other_variable() -> None:
    keys = ["file:/etc/hostname", "env:AWS_SECRET_ACCESS_KEY", "plain", "env:HEADGATE_KEY_A"]

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"models": [entry(name=f"m{i}", api_key=key) for i, key in enumerate(keys)]})

    environ = {"AWS_SECRET_ACCESS_KEY": "aws-very-secret", "HEADGATE_KEY_A": "given-key"}
    async with site(handler) as url:
        with pytest.raises(errors.InvalidRosterError) as caught:
            await HttpRoster(url, environ=environ).load()
        del keys[:3]
        (model,) = await HttpRoster(url, environ=environ).load()
    text = str(caught.value)
    assert "3 problems" in text
    assert "HEADGATE_KEY_" in text
    assert "aws-very-secret" not in text
    assert model.api_key.reveal() == "given-key"


@pytest.mark.parametrize(
    ("status", "body", "rule"),
    [
        (500, b"", "answered HTTP 500"),
        (302, b"", "answered HTTP 302"),
        (304, b"", "answered HTTP 304"),
        (200, b"models: []", "cannot be read"),
        (200, b"\xff", "UTF-8"),
        (200, b" " * 5_000_001, "larger than 5,000,000 bytes"),
    ],
    ids=["500", "302", "304", "yaml", "binary", "huge"],
)
async def test_an_address_that_serves_no_roster_is_told(status: int, body: bytes, rule: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    async with site(handler) as url:
        with pytest.raises(errors.InvalidRosterError, match=rule) as caught:
            await HttpRoster(url, environ={}).load()
    assert url in str(caught.value)


async def test_an_address_that_is_silent_absent_or_forbidden_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.InvalidRosterError, match=r"within 0\.1 s"):
            await HttpRoster(url, environ={}, timeout_s=0.1).load()
    with pytest.raises(errors.InvalidRosterError, match="cannot be fetched"):
        await HttpRoster(url, environ={}).load()
    with pytest.raises(errors.InvalidRosterError, match="link-local"):
        await HttpRoster("http://169.254.169.254/roster", environ={}).load()


async def test_openai_s_variables_name_the_models() -> None:
    environ = {"OPENAI_BASE_URL": URL + "/", "OPENAI_API_KEY": "sk-test-123456", "OPENAI_MODEL": "a, org/b c ,a"}
    first, second = await OpenAIRoster(environ=environ).load()
    assert (first.name, first.request_name, first.base_url, first.uid) == ("a", "a", URL, 0)
    assert (second.name, second.request_name, second.uid) == ("org/b-c", "org/b c", 1)
    assert first.api_key.reveal() == "sk-test-123456"


async def test_without_a_model_s_name_the_endpoint_is_asked_what_it_serves() -> None:
    served = [{"id": "x"}, {"id": "y"}]

    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/v1/models"
        assert request.headers["Authorization"] == "Bearer sk-test-123456"
        return web.json_response({"object": "list", "data": served})

    async with site(handler) as url:
        environ = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-test-123456"}
        assert [model.name for model in await OpenAIRoster(environ=environ).load()] == ["x", "y"]
        served *= 9
        with pytest.raises(errors.InvalidRosterError, match="lists 18 models"):
            await OpenAIRoster(environ=environ).load()


@pytest.mark.parametrize(
    ("environ", "rule"),
    [
        ({}, "neither OPENAI_BASE_URL nor OPENAI_API_KEY"),
        ({"OPENAI_BASE_URL": "nonsense"}, "OPENAI_BASE_URL: must be"),
    ],
)
async def test_variables_that_name_no_endpoint_are_told(environ: dict[str, str], rule: str) -> None:
    with pytest.raises(errors.InvalidRosterError, match=rule):
        await OpenAIRoster(environ=environ).load()


def test_the_setting_chooses_the_source() -> None:
    assert isinstance(roster_source("", environ={}), OpenAIRoster)
    assert isinstance(roster_source("https://h.example/roster.json"), HttpRoster)
    assert isinstance(roster_source("models.yaml"), FileRoster)


def test_a_lane_that_is_none_is_one_problem_in_the_words_of_the_roster() -> None:
    text = said(entry(name="a", lane="fast"))
    assert "1 problem:" in text
    assert "entry 1 (a), lane: must be '', 'now', 'batch' or 'auto' (got 'fast')" in text


def test_a_roster_of_nobody_says_that_its_list_is_empty() -> None:
    assert "models: must be a list with at least one entry (got an empty list)" in said()
