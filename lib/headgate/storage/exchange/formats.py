"""The formats by name, and the kinds of errors in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import orjson

from headgate.core import ErrorKind, errors, redacted
from headgate.core.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Words:
    """One message of a conversation."""

    role: str
    content: str


def messages_of(conversation: str) -> list[Words]:
    """Return the messages of a stored conversation: pairs of role and content, or objects with both.

    A conversation stored in any other form has no messages.
    """
    try:
        stored = orjson.loads(conversation)
        return [_words(entry) for entry in stored] if isinstance(stored, list) else []
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return []


def conversation_of(messages: Sequence[Words]) -> str:
    """Return messages in the form that a campaign stores; empty if there are none."""
    return orjson.dumps([(words.role, words.content) for words in messages]).decode() if messages else ""


def without_keys(text: str) -> str:
    """Return a text of any length with this process's secrets, and text in the form of a provider's key, masked."""
    # Twice the length, since the mask may be longer than the text that it replaces.
    return redacted(text, limit_chars=2 * len(text) + 100) if text else text


def conversation_without_keys(conversation: str) -> str:
    """Return a conversation with the keys in its texts masked; the same object if it has none."""
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
    if isinstance(content, list):  # a list of parts, as in OpenAI's API
        content = "\n".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message must have a role and a content that are text (got {role!r})")
    return Words(role, content)


ExportFormat = Literal["jsonl", "inspect", "openai", "parquet", "hf", "affine-results", "affine-summary"]
ImportFormat = Literal["jsonl", "inspect", "parquet", "affine-results"]

EXPORT_FORMATS: Final[tuple[str, ...]] = get_args(ExportFormat)
IMPORT_FORMATS: Final[tuple[str, ...]] = get_args(ImportFormat)

_ONLY_OUT: Final = {
    "affine-summary": "a summary holds counts and no samples, so there is nothing to import",
    "openai": "lines for fine-tuning are not read back",
    "hf": "a data set for Hugging Face is not read back",
}
_INSTEAD: Final = {
    "affine-summary": "Import the result shards instead, with --format affine-results.",
    "openai": "Move samples between stores with --format jsonl or parquet.",
    "hf": "Move samples between stores with --format jsonl or parquet.",
}


def checked_format(form: str, known: Sequence[str]) -> None:
    """Return if the format is known.

    Raises:
        errors.InvalidInputError: if not; with the nearest one, or an alternative to a format that is only exported.
    """
    if form in known:
        return
    if form in _ONLY_OUT:
        raise errors.InvalidInputError(_ONLY_OUT[form], next_step=_INSTEAD[form])
    raise errors.InvalidInputError(
        f"there is no format {form!r}{did_you_mean(form, known)}",
        next_step=f"The formats are {', '.join(known)}.",
    )


def is_one_log(output: Path) -> bool:
    """Return whether an output of this name is a single log of inspect_ai instead of a folder of logs."""
    return output.suffix in {".eval", ".json"} and not output.is_dir()


@contextmanager
def needs_inspect() -> Iterator[None]:
    """Return a context for imports that need inspect_ai: raises `MissingExtraError` on a machine without it."""
    try:
        yield
    except ImportError:
        raise errors.MissingExtraError("The format inspect", "inspect") from None


_KINDS: Final[tuple[tuple[re.Pattern[str], ErrorKind], ...]] = (
    (
        re.compile(r"(?i)\b(429|402)\b|maximum capacity|try again later|zero balance|rate.?limit"),
        ErrorKind.RATE_LIMITED,
    ),
    (re.compile(r"(?i)\b(401|403)\b|invalid api key|api_key"), ErrorKind.AUTH),
    (re.compile(r"(?i)\b400\b|bad request"), ErrorKind.BAD_REQUEST),
    (re.compile(r"(?i)time.?out|timed out|\b504\b"), ErrorKind.PROVIDER_TIMEOUT),
    (re.compile(r"(?i)\b5\d\d\b|no instances available"), ErrorKind.PROVIDER_FAILURE),
    (re.compile(r"(?i)connect|refused|unreachable"), ErrorKind.CONNECTION),
)
"""Patterns of error texts, after the service errors of Affine's runner; all others are the environment's errors."""


def kind_of_error(error: object) -> ErrorKind:
    """Return the kind of error that a text describes: a provider's, or else the environment's."""
    text = str(error)
    return next((kind for pattern, kind in _KINDS if pattern.search(text)), ErrorKind.ENVIRONMENT)
