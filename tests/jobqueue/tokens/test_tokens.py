"""Tokens themselves: what opens them, until when, and what is kept of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidInputError
from headgate.net.refusals import token_of
from headgate.net.tokens import (
    Refusal,
    Scope,
    Token,
    new_token,
    parsed,
    refusal_of,
    revoked,
    rotated,
)

NOW = 1_000_000.0
BOUND, TEXT = new_token("bound", [Scope.CLAIM], now=NOW, teams=["a"], worker="w-1", lifetime_s=60.0)
OTHER, OTHER_TEXT = new_token("other", [Scope.READ], now=NOW)


def _verdict(text: str, now: float = NOW, *tokens: Token) -> Refusal | None:
    parts = parsed(text)
    if parts is None:
        return Refusal.MALFORMED
    by_id = {token.token_id: token for token in tokens or (BOUND, OTHER)}
    return refusal_of(by_id.get(parts.token_id), parts.secret, now)


def test_the_text_names_the_token_and_opens_it() -> None:
    assert TEXT.reveal().startswith(f"hgq_{BOUND.token_id}.")
    assert _verdict(TEXT.reveal()) is None


def test_a_secret_has_256_random_bits() -> None:
    secret = TEXT.reveal().partition(".")[2]
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    assert len({new_token("n", [Scope.READ], now=NOW)[1].reveal() for _ in range(100)}) == 100


def test_only_the_hash_of_the_secret_is_kept() -> None:
    secret = TEXT.reveal().partition(".")[2]
    assert BOUND.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert not any(secret in str(value) for value in astuple(BOUND))


def test_neither_secret_nor_hash_shows_in_repr_or_str() -> None:
    changed, text = rotated(BOUND, now=NOW, overlap_s=9.0)
    for shown in (repr(changed), str(changed), repr(text), str(text), f"{text}"):
        assert text.reveal() not in shown
        assert text.reveal().partition(".")[2] not in shown
        assert changed.digest not in shown
        assert changed.previous_digest not in shown


@given(st.integers(0, len(TEXT.reveal()) - 1), st.characters())
def test_a_token_tampered_with_anywhere_is_refused(position: int, character: str) -> None:
    text = TEXT.reveal()
    tampered = text[:position] + character + text[position + 1 :]
    if tampered != text:
        assert _verdict(tampered) in {Refusal.UNKNOWN, Refusal.MALFORMED}


@given(st.integers(0, len(TEXT.reveal()) - 1), st.text(min_size=1, max_size=60))
def test_a_token_cut_or_lengthened_is_refused(length: int, more: str) -> None:
    assert _verdict(TEXT.reveal()[:length]) is Refusal.MALFORMED
    assert _verdict(TEXT.reveal() + more) is Refusal.MALFORMED
    assert _verdict(more + TEXT.reveal()) is Refusal.MALFORMED


@given(st.text(max_size=300))
def test_any_other_text_is_refused_without_an_error(text: str) -> None:
    assert _verdict(text) in {Refusal.UNKNOWN, Refusal.MALFORMED}


def test_case_counts() -> None:
    assert _verdict(TEXT.reveal().upper()) is Refusal.MALFORMED
    head, dot, secret = TEXT.reveal().partition(".")
    assert _verdict(head + dot + secret.swapcase()) is Refusal.UNKNOWN


def test_the_secret_of_another_token_opens_nothing() -> None:
    mixed = TEXT.reveal().partition(".")[0] + "." + OTHER_TEXT.reveal().partition(".")[2]
    assert _verdict(mixed) is Refusal.UNKNOWN


def test_it_expires_at_its_time_and_not_before() -> None:
    assert BOUND.expires_at == NOW + 60
    assert _verdict(TEXT.reveal(), NOW + 59.9) is None
    assert _verdict(TEXT.reveal(), NOW + 60) is Refusal.EXPIRED
    assert _verdict(OTHER_TEXT.reveal(), NOW + 1e12) is None


@pytest.mark.parametrize("ahead_s", [-1000.0, 0.0, 1000.0])
def test_a_revoked_token_is_refused_whatever_clock_revoked_it(ahead_s: float) -> None:
    ended = revoked(BOUND, now=NOW + ahead_s)
    assert _verdict(TEXT.reveal(), NOW, ended) is Refusal.REVOKED


def test_revoking_twice_keeps_the_first_time() -> None:
    once = revoked(BOUND, now=NOW)
    assert revoked(once, now=NOW + 5) == once


def test_a_wrong_secret_does_not_learn_that_the_token_was_revoked_or_has_expired() -> None:
    wrong = TEXT.reveal()[:-3] + "AAA"
    assert _verdict(wrong, NOW, revoked(BOUND, now=NOW)) is Refusal.UNKNOWN
    assert _verdict(wrong, NOW + 100) is Refusal.UNKNOWN


def test_both_secrets_are_good_while_they_overlap() -> None:
    changed, text = rotated(OTHER, now=NOW, overlap_s=10.0)
    assert changed.token_id == OTHER.token_id
    assert _verdict(text.reveal(), NOW, changed) is None
    assert _verdict(OTHER_TEXT.reveal(), NOW + 9.9, changed) is None
    assert _verdict(OTHER_TEXT.reveal(), NOW + 10, changed) is Refusal.ROTATED
    assert _verdict(text.reveal(), NOW + 10, changed) is None


def test_without_overlap_the_old_secret_ends_at_once() -> None:
    changed, _ = rotated(OTHER, now=NOW, overlap_s=0.0)
    assert _verdict(OTHER_TEXT.reveal(), NOW, changed) is Refusal.ROTATED


def test_a_second_rotation_ends_the_first_secret() -> None:
    once, first = rotated(OTHER, now=NOW, overlap_s=100.0)
    twice, second = rotated(once, now=NOW + 1, overlap_s=100.0)
    assert _verdict(OTHER_TEXT.reveal(), NOW + 2, twice) is Refusal.UNKNOWN
    assert _verdict(first.reveal(), NOW + 2, twice) is None
    assert _verdict(second.reveal(), NOW + 2, twice) is None


def test_revoking_ends_both_secrets() -> None:
    changed, text = rotated(OTHER, now=NOW, overlap_s=100.0)
    ended = revoked(changed, now=NOW + 1)
    assert _verdict(text.reveal(), NOW + 2, ended) is Refusal.REVOKED
    assert _verdict(OTHER_TEXT.reveal(), NOW + 2, ended) is Refusal.REVOKED


def test_an_old_secret_never_outlives_the_expiry_it_was_given() -> None:
    changed, text = rotated(BOUND, now=NOW + 50, overlap_s=3600.0, lifetime_s=1000.0)
    assert _verdict(TEXT.reveal(), NOW + 59, changed) is None
    assert _verdict(TEXT.reveal(), NOW + 60, changed) is Refusal.ROTATED
    assert _verdict(text.reveal(), NOW + 1049, changed) is None
    revived, _ = rotated(BOUND, now=NOW + 70, overlap_s=3600.0, lifetime_s=1000.0)
    assert _verdict(TEXT.reveal(), NOW + 70, revived) is Refusal.ROTATED


def test_what_has_ended_is_not_rotated() -> None:
    with pytest.raises(InvalidInputError, match="is revoked"):
        rotated(revoked(OTHER, now=NOW), now=NOW, overlap_s=0, lifetime_s=60)
    with pytest.raises(InvalidInputError, match="is expired"):
        rotated(BOUND, now=NOW + 61, overlap_s=0)
    with pytest.raises(InvalidInputError, match="got -1"):
        rotated(OTHER, now=NOW, overlap_s=-1)


def test_an_unknown_id_takes_the_same_work_as_a_wrong_secret_and_as_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked: list[tuple[str, int]] = []
    compare, sha256 = hmac.compare_digest, hashlib.sha256
    monkeypatch.setattr(
        hmac, "compare_digest", lambda a, b: worked.append(("compare", len(a) + len(b))) or compare(a, b)
    )
    monkeypatch.setattr(hashlib, "sha256", lambda data: worked.append(("hash", len(data))) or sha256(data))

    def work(text: str, *tokens: Token) -> list[tuple[str, int]]:
        worked.clear()
        _verdict(text, NOW, *tokens)
        return list(worked)

    changed, text = rotated(OTHER, now=NOW, overlap_s=10.0)
    right = work(TEXT.reveal(), BOUND)
    assert [kind for kind, _ in right] == ["hash", "compare", "compare"]
    assert work(TEXT.reveal(), OTHER) == right
    assert work(TEXT.reveal()[:-3] + "AAA", BOUND) == right
    assert work(text.reveal(), changed) == right
    assert work(OTHER_TEXT.reveal(), changed) == right


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00", "\x1b[31m", "a\udcff"])
def test_names_that_cannot_be_shown_or_stored_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"a (name|team|worker) must"):
        new_token(name, [Scope.READ], now=NOW)
    with pytest.raises(InvalidInputError, match=r"a (name|team|worker) must"):
        new_token("n", [Scope.READ], now=NOW, teams=["a", name])
    with pytest.raises(InvalidInputError, match=r"a (name|team|worker) must"):
        new_token("n", [Scope.READ], now=NOW, worker=name)


def test_a_token_that_could_do_nothing_is_not_made() -> None:
    with pytest.raises(InvalidInputError, match="at least one scope"):
        new_token("n", [], now=NOW)
    with pytest.raises(InvalidInputError, match="bound to no team"):
        new_token("n", [Scope.READ], now=NOW, teams=[])
    with pytest.raises(InvalidInputError, match="> 0 s"):
        new_token("n", [Scope.READ], now=NOW, lifetime_s=0)
    with pytest.raises(InvalidInputError, match=r"within ±1000000 \(got 1000001\)"):
        new_token("n", [Scope.READ], now=NOW, most_priority=1_000_001)


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer abc", "abc"),
        ("bearer   abc ", "abc"),
        ("Bearer", None),
        ("Bearer ", None),
        ("abc", None),
        ("Digest abc", None),
        (_basic("worker:abc"), "abc"),
        (_basic(":abc"), "abc"),
        (_basic("worker:a:b"), "a:b"),
        (_basic("worker:"), None),
        (_basic("worker"), None),
        ("Basic !!!", None),
        ("Basic " + base64.b64encode(b"w:\xff").decode(), None),
        ("Basic é", None),
    ],
)
def test_a_token_is_read_from_bearer_and_from_the_password_of_basic(header: str | None, token: str | None) -> None:
    assert token_of(header) == token


@given(st.text(max_size=100), st.sampled_from(["", "Bearer ", "Basic "]))
def test_no_header_is_an_error(text: str, scheme: str) -> None:
    token_of(scheme + text)


def test_an_old_secret_rotated_by_a_clock_that_was_ahead_is_not_let_in_until_then() -> None:
    changed, new = rotated(OTHER, now=NOW + 400 * 86_400.0, overlap_s=3_600.0)
    assert _verdict(OTHER_TEXT.reveal(), NOW, changed) is Refusal.ROTATED
    assert _verdict(new.reveal(), NOW, changed) is None
    assert _verdict(OTHER_TEXT.reveal(), NOW + 400 * 86_400.0 + 60.0, changed) is None
