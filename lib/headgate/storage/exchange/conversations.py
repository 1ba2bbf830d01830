"""Stored conversations: their messages, and their texts without keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headgate.core import redacted


@dataclass(frozen=True, slots=True)
class Words:
    """One message of a conversation."""

    role: str
    content: str


def messages_of(conversation: str) -> list[Words]:
    """Return the messages of a stored conversation: pairs of role and content, or objects with both.

    A conversation that another program stored in another form has none.
    """
    try:
        stored = orjson.loads(conversation)
        return [_words(entry) for entry in stored] if isinstance(stored, list) else []
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return []


def conversation_of(messages: Sequence[Words]) -> str:
    """Return messages as a campaign stores them; empty when there are none."""
    return orjson.dumps([(words.role, words.content) for words in messages]).decode() if messages else ""


def without_keys(text: str) -> str:
    """Return a text of any length without secrets of this process and what has the shape of a provider's key."""
    # Twice the length: the mask may be longer than what it covers.
    return redacted(text, limit_chars=2 * len(text) + 100) if text else text


def conversation_without_keys(conversation: str) -> str:
    """Return a conversation with the keys in its texts masked; the very same one when it holds none."""
    if not conversation:
        return conversation
    try:
        stored = orjson.loads(conversation)
    except orjson.JSONDecodeError:
        return without_keys(conversation)
    masked = _masked(stored)
    return conversation if masked == stored else orjson.dumps(masked).decode()


def _masked(value: Any) -> Any:
    match value:
        case str():
            return without_keys(value)
        case list():
            return [_masked(inner) for inner in value]
        case dict():
            return {key: _masked(inner) for key, inner in value.items()}
        case _:
            return value


def _words(entry: Any) -> Words:
    role, content = (entry["role"], entry["content"]) if isinstance(entry, dict) else entry
    if isinstance(content, list):  # parts, as OpenAI's API has them
        content = "\n".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message has a role and a content that are texts (got {role!r})")
    return Words(role, content)
