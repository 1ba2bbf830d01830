"""Secrets: held so that no log, event, sample or traceback can show them."""

from __future__ import annotations

import re
from typing import Final

_MASK: Final = "[redacted]"
_TOKEN_LIKE: Final = re.compile(
    r"(?i)(?:\b(?:sk|pk|rk|hf|gsk|xai|ghp|glpat)[-_][A-Za-z0-9_-]{8,})"  # keys as providers shape them
    r"|(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"  # authorization headers
    r"|(?<=api[-_]key[=:])\s*[^\s,;&\"']{4,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user:password in URLs
)
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


def redacted(text: str, *, limit_chars: int = 2_000) -> str:
    """Return `text` without any secret created in this process or anything shaped like a provider's key.

    The result is cut to `limit_chars`, so that an answer of many megabytes never travels inside a message.
    """
    text = text[: limit_chars * 2]
    for value in _known:
        if value in text:
            text = text.replace(value, _MASK)
    text = _TOKEN_LIKE.sub(_MASK, text)
    return text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"
