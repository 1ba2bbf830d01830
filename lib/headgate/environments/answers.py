"""Finds the answer in a model's reply, in time linear in its length, whatever it contains."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

_FENCE: Final = re.compile(r"```[ \t]*(\w*)")
_WORD: Final = re.compile(r"[A-Za-z0-9]")
_ENDS: Final = "\\n\\r\\v\\f\\x1c\\x1d\\x1e\\x85\\u2028\\u2029"
"""Where `str.splitlines` ends a line."""

ONE_ACTION: Final = "Only one action is allowed per reply; nothing was done."
"""A game's answer to a reply in which `only_action` finds more than one action."""

_ACTION_LINE: Final = re.compile(rf"[{_ENDS}][^\w{_ENDS}]*action[^\w{_ENDS}]*:([^{_ENDS}]*)", re.IGNORECASE)
_NEXT_LINE: Final = re.compile(rf"(?:\r\n|[{_ENDS}])([^{_ENDS}]*)")


def without_thinking(reply: str) -> str:
    """Return `reply` without `<think>…</think>` and `<thinking>…</thinking>`; an unclosed tag stays."""
    for tag in ("think", "thinking"):
        reply = "".join(_outside(reply, f"<{tag}>", f"</{tag}>"))
    return reply


def last_tagged(reply: str, tag: str) -> str | None:
    """Return the content of the last closed `<tag>…</tag>` in `reply`, ignoring case, or None."""
    closing = _last_match(re.finditer(f"</{tag}>", reply, re.IGNORECASE))
    if closing is None:
        return None
    opening = _last_match(re.finditer(f"<{tag}>", reply[: closing.start()], re.IGNORECASE))
    return None if opening is None else reply[opening.end() : closing.start()]


def last_python_fence(reply: str) -> str | None:
    """Return the content of the last closed ```` ```python ```` block in `reply`, or None."""
    opened: int | None = None
    found: str | None = None
    for fence in _FENCE.finditer(reply):
        if fence[1].lower() in ("python", "python3", "py"):
            opened = fence.end()
        elif opened is not None:
            found, opened = reply[opened : fence.start()], None
    return found


def named_actions(reply: str) -> Iterator[str]:
    """Yield what follows each `Action:` at the start of a line, on that line or else on one of the next two."""
    if "action" not in _small(reply):  # a hundred times as fast as the expression, and enough for most long replies
        return
    text = f"\n{reply}"
    for found in _ACTION_LINE.finditer(text):
        yield found[1] if _WORD.search(found[1]) else _following(text, found.end())


def only_action(reply: str) -> str | None:
    """Return what follows the only `Action:` of a reply, the whole reply if it has none, or None if it has several."""
    named = list(islice(named_actions(reply), 2))
    return None if len(named) > 1 else named[0] if named else reply


def normalised_output(text: str) -> str:
    """Return `text` in the form in which outputs are compared: stripped, CRLF as LF, no trailing blanks in lines."""
    return "\n".join(line.rstrip() for line in text.strip().replace("\r\n", "\n").split("\n"))


def _outside(text: str, opening: str, closing: str) -> Iterator[str]:
    position = 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        yield text[position:start]
        position = end + len(closing)
    yield text[position:]


def _following(text: str, line_end: int) -> str:
    """Return the first of the two lines after `line_end` that is not blank, else an empty string."""
    for _ in range(2):
        line = _NEXT_LINE.match(text, line_end)
        if line is None:
            break
        if line[1].strip():
            return line[1]
        line_end = line.end()
    return ""


def _small(text: str) -> str:
    """Return `text` in lower case, of equal length, with an i for letters that case-insensitive patterns match as i."""
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u0131", "i")  # the lower case of the first has two characters
    return text.lower()


def _last_match(matches: Iterator[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(deque(matches, maxlen=1)), None)
