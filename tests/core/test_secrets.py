"""A secret is shown to nobody: not in messages, reprs, formats, events or samples."""

from __future__ import annotations

import copy
import dataclasses
import html
import inspect
import json
import pickle
import re
import sys
import traceback
import typing
from base64 import b64encode, urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core import Model, Sample, Secret, events, masked, redacted, secrets
from tests.examples import examples

CANARY = "canary-5f1d0c77e2"


@pytest.fixture(scope="module", autouse=True)
def planted() -> Secret:
    return Secret(CANARY)


def test_only_reveal_shows_a_secret() -> None:
    secret = Secret(CANARY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>40}",
        format(secret),
        repr([secret]),
        repr({"k": secret}),
    ]
    assert [text for text in shown if CANARY in text] == []
    assert secret.reveal() == CANARY


def test_a_model_never_shows_its_key() -> None:
    model = Model("acme/small", api_key=Secret(CANARY))
    assert CANARY not in repr(model)
    assert CANARY not in str(dataclasses.asdict(model))
    with pytest.raises(TypeError):
        orjson.dumps(model)


def test_an_empty_secret_says_that_it_is_empty() -> None:
    assert not Secret("")
    assert (repr(Secret("")), str(Secret(""))) == ("Secret('')", "")


def test_secrets_are_compared_by_value_and_with_secrets_only() -> None:
    assert Secret("one-value") == Secret("one-value")
    assert len({Secret("one-value"), Secret("one-value"), Secret("other-value")}) == 2
    assert Secret("one-value") != "one-value"


def test_a_secret_reaches_another_process_and_is_masked_there_too() -> None:
    assert pickle.loads(pickle.dumps(Secret(CANARY))).reveal() == CANARY
    assert copy.deepcopy(Secret(CANARY)).reveal() == CANARY


def test_a_traceback_of_a_redacted_message_shows_no_secret() -> None:
    def fail(key: Secret) -> None:
        raise RuntimeError(redacted(f"the key {key.reveal()} was refused"))

    with pytest.raises(RuntimeError) as failed:
        fail(Secret(CANARY))
    assert CANARY not in "".join(traceback.format_exception(failed.value))


def test_nothing_that_is_logged_or_stored_has_room_for_a_secret() -> None:
    allowed = {str, int, float, bool, type(None)}
    for cls in filter(dataclasses.is_dataclass, (Sample, *(c for _, c in inspect.getmembers(events, inspect.isclass)))):
        hints = typing.get_type_hints(cls)
        for name, hint in ((field.name, hints[field.name]) for field in dataclasses.fields(cls)):
            assert _leaves(hint) <= allowed, (cls, name, hint)


def _leaves(hint: Any) -> set[Any]:
    """Return the types that the values of a field are made of, those of dataclasses and containers inside included."""
    if dataclasses.is_dataclass(hint):
        return {leaf for inner in typing.get_type_hints(hint).values() for leaf in _leaves(inner)}
    if typing.get_origin(hint) is typing.Literal:
        return {type(value) for value in typing.get_args(hint)}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {str}
    inside = [argument for argument in typing.get_args(hint) if argument is not ...]
    return {leaf for inner in inside for leaf in _leaves(inner)} if inside else {hint}


@pytest.mark.parametrize(
    "message",
    [
        f"401: key {CANARY} is not valid",
        f'{{"error": {{"message": "bad key", "headers": [{{"authorization": "Bearer {CANARY}"}}]}}}}',
        f"GET https://user:{CANARY}@host/v1 failed",
        f"{CANARY}{CANARY}",
        f"x-api-key:{CANARY}\r\nhost: a",
        f"OPENAI_API_KEY={CANARY}",
    ],
)
def test_a_known_secret_is_masked_wherever_it_stands(message: str) -> None:
    assert CANARY not in redacted(message)
    assert "[redacted]" in redacted(message)


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("Incorrect API key provided: sk-proj-a1B2c3D4e5F6", "a1B2c3D4"),
        ("token hf_AbCdEfGhIjKlMn is expired", "AbCdEfGh"),
        ("Authorization: Bearer eyJhbGciOi.J9.x_y-z", "eyJhbGciOi"),
        ('"authorization": "bearer abcdefgh12345678"', "abcdefgh"),
        ("fetch https://alice:correct-horse@models.example/v1", "correct-horse"),
        ("fetch https://alice:p@ss-word@models.example/v1", "ss-word"),
        ("connect redis://:battery-staple@cache:6379/0", "battery-staple"),
        ("https://host/v1?api_key=zyxwvuts&model=a", "zyxwvuts"),
        ("OPENAI_API_KEY=zyxwvuts HOME=/root", "zyxwvuts"),
        ('{"api_key": "zyxwvuts", "model": "a"}', "zyxwvuts"),
        ("{'api-key': 'zyxwvuts'}", "zyxwvuts"),
        ("CHUTES_API_KEY: zyxwvuts", "zyxwvuts"),
        ("password: zyxwvuts\nuser: alice", "zyxwvuts"),
        ("token: zyxwvuts1 was refused", "zyxwvuts1"),
        ("api_key: abcdefghijklmnopqrstuvwx is wrong", "abcdefghijkl"),
        ("AWS_SECRET_ACCESS_KEY=zyxwvuts/abc+def", "zyxwvuts"),
        ("HEADGATE_MONITOR_TOKEN=zyxwvuts", "zyxwvuts"),
        ('{"password":"zyxwvuts"}', "zyxwvuts"),
        ("https://host/object?X-Amz-Signature=0123456789abcdef&x=1", "0123456789abcdef"),
    ],
)
def test_what_is_shaped_like_a_key_is_masked_though_nobody_told_us_of_it(message: str, part: str) -> None:
    assert part not in redacted(message)
    assert "[redacted]" in redacted(message)


@pytest.mark.parametrize(
    "message",
    [
        "connection to http://127.0.0.1:8000/v1 refused",
        "maximum context is 4096 tokens, max_tokens: 5000 were asked for",
        "score 3/4: clause 2 of 4 does not hold",
        "see https://example.org/a@b for the task",
        "risk-averse agents skip-ahead",
        "entry 1 (my-model), api_key: environment variable MY_MODEL_KEY is not set",
        "entry 1 (my-model), api_key: variable MY_MODEL_KEY holds no valid key",
        "monitor_token: must be given beyond loopback",
        "",
    ],
)
def test_an_ordinary_message_stays_as_it_is(message: str) -> None:
    assert redacted(message) == message


def test_of_two_secrets_that_begin_alike_neither_shows_its_end() -> None:
    shared = "shared-start-"
    longer = [Secret(f"{shared}{i}-tail-{i}") for i in range(20)]
    Secret(shared)
    for secret in longer:
        assert "tail" not in redacted(f"key {secret.reveal()}")


def test_a_message_is_cut_to_its_limit() -> None:
    assert len(redacted("x" * 10_000_000)) == 2_000
    assert redacted("abc" * 10, limit_chars=10) == "abcabcabc…"


@given(st.integers(0, 400), st.integers(0, 40), st.integers(20, 200))
def test_no_part_of_a_secret_survives_at_the_cut(before: int, copies: int, limit: int) -> None:
    secret = "whole-secret-" + "0123456789" * 12
    Secret(secret)
    shown = redacted("x" * before + secret * copies, limit_chars=limit)
    assert len(shown) <= limit
    assert "whole-secret" not in shown
    assert "0123" not in shown


def test_threads_may_make_secrets_while_others_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.core.secrets._known", {f"made-before-{i}" for i in range(2_000)})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            made = pool.submit(lambda: [Secret(f"made-meanwhile-{i}") for i in range(20_000)])
            masked = [pool.submit(redacted, "nothing to see") for _ in range(100)]
            assert {call.result() for call in masked} == {"nothing to see"}
            made.result()
    finally:
        sys.setswitchinterval(interval)


def test_a_job_queue_s_token_is_masked_wherever_it_stands() -> None:
    token = "hgq_0123456789ab.Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE"
    assert redacted(f"refused {token} of worker w") == "refused [redacted] of worker w"


def encodings(secret: str) -> dict[str, str]:
    """How programs write a secret that they were given; with base64 in the middle of a longer text."""
    data = secret.encode()
    basic = {f"base64 {before}": b64encode(b"u" * before + data + b":x").decode() for before in range(4)}
    for_urls = {f"urlsafe {before}": urlsafe_b64encode(b"u" * before + data).decode() for before in range(4)}
    return {
        **basic,
        **for_urls,
        "itself": secret,
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "url": quote(secret, safe=""),
        "form": quote_plus(secret),
        "small url": re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
        "JSON": json.dumps(secret),
        "JSON twice": json.dumps(json.dumps(secret)),
        "PHP's JSON": json.dumps(secret).replace("/", "\\/"),
        "HTML": html.escape(secret),
    }


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=6, max_size=40)


@settings(max_examples=examples(300))
@given(KEYS.filter(lambda key: not key.isalpha() and not key.isdigit()), st.text("ab c\n", max_size=60))
@example('sk/"a\\b+c é&<', "")
def test_an_answer_shows_no_key_in_any_usual_encoding(key: str, before: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.core.secrets._known", set())
        patch.setattr("headgate.core.secrets._forms", secrets._Forms())
        Secret(key)
        answers = {name: (form, masked(before + form + before)) for name, form in encodings(key).items()}
    for name, (form, shown) in answers.items():
        assert "[redacted]" in shown, (name, form)
        if len(key) >= 12:
            assert len(shown) < len(before) * 2 + len(form) / 2 + 26, (name, form, shown)


def test_words_and_numbers_of_an_answer_stay_though_somebody_made_them_a_password() -> None:
    Secret("passphrase")
    Secret("1234567")
    Secret("sk-other-0123456789")
    answer = "A passphrase of 1234567 letters; sk-ghost-0123456789 is nobody's key."
    assert masked(answer) is answer


def test_a_text_is_looked_at_in_few_places_however_many_keys_there_are() -> None:
    made = [Secret(f"key-{number}-0123456789abcdef") for number in range(300)]
    text = "an answer like any other, of some length. " * 500
    looked = 0

    class Watched(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

    assert masked(Watched(text)) == text
    assert looked <= len(text)
    assert masked(text + made[7].reveal()) == text + "[redacted]"
