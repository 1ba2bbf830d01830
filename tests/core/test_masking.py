"""Masking looks at few places of a text, and masks what the patterns alone would mask, tried everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core import redacted, secrets

_TOKEN_LIKE = re.compile(
    r"(?i)(?:\b(?:sk|pk|rk|hf|gsk|xai|ghp|glpat)[-_][A-Za-z0-9_-]{8,})"
    r"|\bhgq_[0-9a-f]{12}\.[A-Za-z0-9_-]{8,}"
    r"|(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)"
)
_NAMED_SECRET = re.compile(
    r"(?i)((?:api[-_]?key|access[-_]key(?:[-_]id)?|secret|token|password|signature)[\"']?\s*[=:]\s*[\"']?)"
    r"[^\s,;&\"'}\]]{4,}"
)
_LETTERS = "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, sys.maxunicode + 1)))
_TAKEN_FOR_ASCII = sorted(set(re.findall("(?i)[a-z]", _LETTERS)) - set(map(chr, range(128))))
_PIECES = (
    *("sk", "pk", "rk", "hf", "gsk", "xai", "ghp", "glpat", "hgq", "hgq_0123456789ab.", "bearer ", "Bearer", "://"),
    *("api", "key", "access", "id", "secret", "token", "password", "signature", "-", "_", "=", ":", "@", "/", ".", " "),
    *("'", '"', "}", ",", "\n", "a1B2c3D4", "zyxwvuts", "user", "é", *_TAKEN_FOR_ASCII),
)
_NEAR_MISSES = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=24).map("".join)


@pytest.fixture(autouse=True, scope="module")
def no_key_is_known() -> Iterator[None]:
    """Keys that other tests of this process have made known would be masked beside what patterns find."""
    known = set(secrets._known)
    secrets._known.clear()
    yield
    secrets._known.update(known)


def _by_the_patterns(text: str) -> str:
    return _NAMED_SECRET.sub(r"\1[redacted]", _TOKEN_LIKE.sub("[redacted]", text))


def _with_capitals(text: str, number: int) -> str:
    return "".join(c.upper() if number >> place % 64 & 1 else c for place, c in enumerate(text))


@given(_NEAR_MISSES, st.integers(0, 2**64 - 1))
@example("gsk-sk-a1B2c3D4 sk-a1B2c3D4", 0)
@example("http://bearer :zyxwvuts@bearer zyxwvuts", 0)
@example("tokentoken='zyxwvuts' secret: password=zyxwvuts", 0)
def test_what_is_masked_is_what_the_patterns_find_anywhere(text: str, capitals: int) -> None:
    text = _with_capitals(text, capitals)
    assert redacted(text, limit_chars=100_000) == _by_the_patterns(text)


def test_a_letter_that_patterns_take_for_one_of_ascii_hides_no_key() -> None:
    assert _TAKEN_FOR_ASCII
    for letter in _TAKEN_FOR_ASCII:
        for plain in "ksi":
            text = f"{'sk-a1B2c3D4 xai-a1B2c3D4 api_key=zyxwvuts'.replace(plain, letter)} é"
            assert redacted(text) == _by_the_patterns(text)
    assert redacted("\u017f\u212a-a1B2c3D4") == "[redacted]"
