"""The formats by name, and the kinds of the errors in them."""

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
    """Return when the format is one of those that are known.

    Raises:
        errors.InvalidInputError: if not; with the nearest one, or what to do where it goes the other way only.
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
    """Return whether an output of this name is one log of inspect_ai, and not a folder of them."""
    return output.suffix in {".eval", ".json"} and not output.is_dir()


@contextmanager
def needs_inspect() -> Iterator[None]:
    """Import what needs inspect_ai in here: raises `MissingExtraError` on a machine without it."""
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
"""What error texts say, after the service errors of Affine's runner; anything else was the environment's."""


def kind_of_error(error: object) -> ErrorKind:
    """Return the kind of error that the text speaks of: a provider's, or else the environment's."""
    text = str(error)
    return next((kind for pattern, kind in _KINDS if pattern.search(text)), ErrorKind.ENVIRONMENT)
