"""Secrets: held so that no log, event, sample or traceback can show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

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
"""Texts in small letters: every match of `_TOKEN_LIKE` has one, and begins so far behind its start."""
_NAME_CUES: Final[Mapping[str, int]] = dict.fromkeys(
    ("apikey", "api-key", "api_key", "access-key", "access_key", "secret", "token", "password", "signature"), 0
)
"""The same for `_NAMED_SECRET`."""
_SIGNS: Final = frozenset("-_:= ")
"""Every match of either pattern holds one of these: a role's name or a number is not looked at further."""
_LIKE_ASCII: Final = (("\u017f", "s"), ("\u212a", "k"), ("\u0131", "i"), ("\u0130", "i"))
"""Letters beyond ASCII that a pattern takes for one of ASCII when it ignores case."""
_known: set[str] = set()


class Secret:
    """A secret string. Its repr and str are a mask; `reveal()` gives it to the one place that sends it."""

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


def secrets_known() -> int:
    """Return how many secrets were created in this process: while it stays, `redacted` gives the same for the same."""
    return len(_known)


def redacted(text: str, *, limit_chars: int = 2_000) -> str:
    """Return `text` without any secret created in this process or anything shaped like a provider's key.

    The result is cut to `limit_chars`, so that an answer of many megabytes never travels inside a message.
    """
    # A copy, in one step: other threads make secrets meanwhile. The longest first: none shows the end of another.
    known = sorted(_known, key=len, reverse=True)
    longest = len(known[0]) if known else 0
    was_cut = len(text) > limit_chars * 2 + longest
    text = text[: limit_chars * 2 + longest]
    for value in known:
        if value in text:
            text = text.replace(value, _MASK)
    if was_cut:
        # The cut may have gone through a secret, whose beginning is now the end of the text.
        text = text[: max(0, len(text) - longest)]
    if not _SIGNS.isdisjoint(text):
        text = _masked(_masked(text, _TOKEN_LIKE, _TOKEN_CUES, _MASK), _NAMED_SECRET, _NAME_CUES, rf"\1{_MASK}")
    return text if len(text) <= limit_chars and not was_cut else text[: limit_chars - 1] + "…"


def _masked(text: str, pattern: re.Pattern[str], cues: Mapping[str, int], mask: str) -> str:
    """Return what `pattern.sub(mask, text)` returns, which tries the pattern at every character and so takes long."""
    kept, end = list[str](), 0
    for place in sorted(_places(text, cues)):
        if place >= end and (found := pattern.match(text, place)):
            kept += [text[end:place], found.expand(mask)]
            end = found.end()
    return "".join([*kept, text[end:]]) if kept else text


def _places(text: str, cues: Mapping[str, int]) -> Iterator[int]:
    """Yield where a match may begin."""
    if not text.isascii():
        for letter, ascii_letter in _LIKE_ASCII:
            text = text.replace(letter, ascii_letter)
    text = text.lower()  # as long as before: of all letters only U+0130, replaced above, grows
    for cue, behind in cues.items():
        # One character is looked for 20 times as fast as a text, and many texts have no `_`.
        place = text.find(cue) if cue[-1] in text else -1
        while place >= 0:
            yield place + behind
            place = text.find(cue, place + 1)
