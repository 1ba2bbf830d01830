"""Finding the answer in a model's reply: in time linear in its length, whatever it holds."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

_FENCE: Final = re.compile(r"```[ \t]*(\w*)")
_ACTION_LINE: Final = re.compile(r"\W*action\W*:(.*)", re.IGNORECASE | re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9]")


def without_thinking(reply: str) -> str:
    """Return `reply` without `<think>…</think>` and `<thinking>…</thinking>`; an unclosed one stays."""
    for tag in ("think", "thinking"):
        reply = "".join(_outside(reply, f"<{tag}>", f"</{tag}>"))
    return reply


def last_tagged(reply: str, tag: str) -> str | None:
    """Return what the last closed `<tag>…</tag>` of `reply` holds, in any case of letters, or None."""
    closing = _last_match(re.finditer(f"</{tag}>", reply, re.IGNORECASE))
    if closing is None:
        return None
    opening = _last_match(re.finditer(f"<{tag}>", reply[: closing.start()], re.IGNORECASE))
    return None if opening is None else reply[opening.end() : closing.start()]


def last_python_fence(reply: str) -> str | None:
    """Return what the last closed ```` ```python ```` block of `reply` holds, or None."""
    opened: int | None = None
    found: str | None = None
    for fence in _FENCE.finditer(reply):
        if fence[1].lower() in ("python", "python3", "py"):
            opened = fence.end()
        elif opened is not None:
            found, opened = reply[opened : fence.start()], None
    return found


def named_actions(reply: str) -> Iterator[str]:
    """Yield what stands after each `Action:` at the beginning of a line, on that line or the next with a word."""
    lines = reply.splitlines()
    for number, line in enumerate(lines):
        found = _ACTION_LINE.match(line)
        if found is not None:
            following = next(filter(str.strip, lines[number + 1 : number + 3]), "")
            yield found[1] if _WORD.search(found[1]) else following


def normalised_output(text: str) -> str:
    """Return `text` as outputs are compared: ends stripped, CRLF as LF, no blanks at the ends of lines."""
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


def _last_match(matches: Iterator[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(deque(matches, maxlen=1)), None)
