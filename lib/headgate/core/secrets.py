"""Secrets: held so that no log, event, sample or traceback can show them."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus

_MASK: Final = "[redacted]"
_TOKEN_LIKE: Final = re.compile(
    r"(?i)(?:\b(?:sk|pk|rk|hf|gsk|xai|ghp|glpat)[-_][A-Za-z0-9_-]{8,})"  # keys as providers shape them
    r"|\bhgq_[0-9a-f]{12}\.[A-Za-z0-9_-]{8,}"  # tokens of a job queue
    r"|(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"  # authorization headers
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)"  # user:password in URLs; an unescaped @ is part of the password
)
_NAMED_SECRET: Final = re.compile(
    r"(?i)((?:api[-_]?key|access[-_]key(?:[-_]id)?|secret|token|password|signature)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!(?<=: )(?-i:[a-z]{1,15}) +[a-z(])"  # not the first word of a sentence: `api_key: variable KEY is not set`
    r"[^\s,;&\"'}\]]{4,}"  # variables, JSON fields and query parameters, by their names
)
_TOKEN_CUES: Final[Mapping[str, int]] = {
    **{f"{name}{sign}": 0 for name in ("sk", "pk", "rk", "hf", "gsk", "xai", "ghp", "glpat") for sign in "-_"},
    "hgq_": 0,
    "bearer ": len("bearer "),
    "://": len("://"),
}
"""Lower-case cues: every match of `_TOKEN_LIKE` has one, and starts this many characters after the cue's start."""
_NAME_CUES: Final[Mapping[str, int]] = dict.fromkeys(
    ("apikey", "api-key", "api_key", "access-key", "access_key", "secret", "token", "password", "signature"), 0
)
"""The same for `_NAMED_SECRET`."""
_LIKE_ASCII: Final = (("\u017f", "s"), ("\u212a", "k"), ("\u0131", "i"), ("\u0130", "i"))
"""Non-ASCII letters that a case-insensitive pattern matches with an ASCII letter."""
_WORD_CHARS: Final = 16
"""A shorter secret of only letters or only digits may be a word or number that an answer must contain."""
_PIECE_CHARS: Final = 5
_MOST_STRIDE: Final = 16
_known: set[str] = set()


@dataclass(frozen=True, slots=True)
class _Forms:
    """The forms in which this process's secrets may occur in a text, and an index that rules out most texts quickly.

    Attributes:
        secrets: number of known secrets when it was made.
        longest: length of the longest of them in characters.
        words: secrets that may be a word or number, which only `redacted` looks for; longest first.
        texts: forms of all others; longest first, so that none leaves the end of another visible.
        stride: step between checked positions of a text; every form in the text has one of `pieces` at one of them.
        pieces: substrings of `_PIECE_CHARS` that start at the first `stride` positions of each form.
    """

    secrets: int = 0
    longest: int = 0
    words: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    stride: int = 1
    pieces: frozenset[str] = frozenset()

    @classmethod
    def of(cls, secrets: set[str]) -> _Forms:
        words = {one for one in secrets if len(one) < _WORD_CHARS and (one.isalpha() or one.isdigit())}
        texts = {form for one in secrets - words for form in _forms_of(one)}
        stride = min((len(text) - _PIECE_CHARS + 1 for text in texts), default=1)
        stride = min(stride, _MOST_STRIDE)
        pieces = frozenset(text[place : place + _PIECE_CHARS] for text in texts for place in range(stride))
        longest = max(map(len, secrets), default=0)
        first, then = (tuple(sorted(some, key=len, reverse=True)) for some in (words, texts))
        return cls(len(secrets), longest, first, then, stride, pieces)


_forms = _Forms()


class Secret:
    """A secret string. Its repr and str are a mask; `reveal()` returns it, for the one place that sends it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        if len(value) >= 6:  # shorter strings would blank ordinary words out of every message
            _known.add(value)

    def reveal(self) -> str:
        """Return the secret itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})" if self._value else "Secret('')"

    def __str__(self) -> str:
        return _MASK if self._value else ""

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (self._value,))


def masked(text: str) -> str:
    """Return a text of any length without any secret of this process, plain or in an encoding that programs use.

    For models' answers. Unlike `redacted` it keeps text that is merely shaped like a key, and short words or numbers.
    It finds secrets in base64, hex, and escaped as in URLs, JSON and HTML.
    """
    forms = _present_forms()
    if not forms.texts:
        return text
    places = range(0, len(text), forms.stride)
    if forms.pieces.isdisjoint(text[place : place + _PIECE_CHARS] for place in places):
        return text
    for form in forms.texts:
        text = text.replace(form, _MASK)
    return text


def _present_forms() -> _Forms:
    global _forms  # noqa: PLW0603 - rebuilt after a new secret; shared by all callers
    if _forms.secrets != len(_known):
        _forms = _Forms.of(_known.copy())  # an atomic copy: other threads may add secrets meanwhile
    return _forms


def _forms_of(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    in_url, in_json = quote(data, safe=""), json.dumps(secret)[1:-1]
    yield from (secret, html.escape(secret), in_json, in_json.replace("/", "\\/"), json.dumps(in_json)[1:-1])
    yield from (in_url, re.sub("%..", lambda found: found[0].lower(), in_url), quote_plus(data))
    yield from (data.hex(), data.hex().upper())
    for before, lost in enumerate((0, 2, 3)):  # bytes before it in the encoded data shift its bits
        encoded = base64.b64encode(bytes(before) + data)[lost : (before + len(data)) * 8 // 6].decode()
        yield from (encoded, encoded.translate(str.maketrans("+/", "-_")))


def secrets_known() -> int:
    """Return how many secrets this process has created; while this stays the same, so does `redacted` of a text."""
    return len(_known)


def redacted(text: str, *, limit_chars: int = 2_000) -> str:
    """Return `text` without any secret created in this process or anything shaped like a provider's key.

    The result is truncated to `limit_chars`, so that a message never contains an answer of many megabytes.
    """
    forms = _present_forms()
    longest = 3 * forms.longest  # its longest escaped form
    was_cut = len(text) > limit_chars * 2 + longest
    text = masked(text[: limit_chars * 2 + longest])
    for word in forms.words:
        text = text.replace(word, _MASK)
    if was_cut:
        # The cut may have split a secret, whose beginning is now the end of the text.
        text = text[: max(0, len(text) - longest)]
    # Every match of either pattern contains one of these characters: most sentences need no further check.
    if "-" in text or "_" in text or "://" in text or "r " in text or "R " in text:
        text = _masked(text, _TOKEN_LIKE, _TOKEN_CUES, _MASK)
    if ":" in text or "=" in text:
        text = _masked(text, _NAMED_SECRET, _NAME_CUES, rf"\1{_MASK}")
    return text if len(text) <= limit_chars and not was_cut else text[: limit_chars - 1] + "…"


def _masked(text: str, pattern: re.Pattern[str], cues: Mapping[str, int], mask: str) -> str:
    """Return the same as `pattern.sub(mask, text)`, which is slow because it tries the pattern at every character."""
    kept, end = list[str](), 0
    for place in sorted(_places(text, cues)):
        if place >= end and (found := pattern.match(text, place)):
            kept += [text[end:place], found.expand(mask)]
            end = found.end()
    return "".join([*kept, text[end:]]) if kept else text


def _places(text: str, cues: Mapping[str, int]) -> Iterator[int]:
    """Yield the positions where a match may start."""
    if not text.isascii():
        for letter, ascii_letter in _LIKE_ASCII:
            text = text.replace(letter, ascii_letter)
    text = text.lower()  # keeps the length: only U+0130, replaced above, grows
    for cue, behind in cues.items():
        # Searching one character is 20 times as fast as searching a string, and many texts have no `_`.
        place = text.find(cue) if cue[-1] in text else -1
        while place >= 0:
            yield place + behind
            place = text.find(cue, place + 1)
