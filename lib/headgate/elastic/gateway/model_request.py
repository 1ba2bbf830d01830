"""What a gateway has to know of a request: its model, how much work it is, and how it begins; no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from headgate.core import json_value
from headgate.elastic.errors import InvalidRequestError

CHARS_PER_TOKEN: Final = 4
"""What tokenizers make of English on average; of code and other languages more tokens come out."""

ANSWER_TOKENS: Final = 256
"""What an answer is taken to have where the request does not bound it."""

MOST_ANSWER_TOKENS: Final = 4096
"""What the longest answer is taken to have, as SGLang's scheduler does (`CLIP_MAX_NEW_TOKENS`): clients that allow 32k
tokens get a few hundred, and workers that kept room for all of it would stand half empty."""

MOST_CHOICES: Final = 128
"""OpenAI's own bound on `n`."""

_MOST_VALUES: Final = 2**20
"""Prompts may be token ids; as many take half a second to parse, in which nobody else is answered."""

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"


class ModelRequest(NamedTuple):
    """A request as far as the gateway reads it.

    Attributes:
        model: that it names; empty where it names none.
        tokens: that it may take, prompt and answer.
        prefixes: hashes of its beginning.
        user: that it names; empty where it names none.
    """

    model: str
    tokens: int
    prefixes: tuple[int, ...]
    user: str


def read_request(path: str, body: bytes) -> ModelRequest:
    """Return what a body of `CHAT` or `COMPLETIONS` asks for; whatever else is wrong with it, the engine tells.

    Raises:
        InvalidRequestError: it is no JSON, no object, or asks for nothing.
    """
    try:
        written: Any = json_value(body, most_values=_MOST_VALUES)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body must be JSON ({error})") from None
    if not isinstance(written, dict):
        raise InvalidRequestError(f"the body must be a JSON object (got {_kind(written)})")
    model = written.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequestError(f"model must be a string (got {_kind(model)})")
    pieces = _messages(written) if path == CHAT else _prompt(written)
    user = written.get("user")
    return ModelRequest(
        model=model or "",
        tokens=sum(map(len, pieces)) // CHARS_PER_TOKEN + 1 + _answer_tokens(written),
        prefixes=prefixes_of(pieces),
        user=user if isinstance(user, str) else "",
    )


def _messages(written: dict[str, Any]) -> list[str]:
    """Return the roles and texts of a chat, in order."""
    messages = written.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(f"messages must be a list of at least one message (got {_kind(messages)})")
    pieces: list[str] = []
    for message in messages:
        if not isinstance(message, dict):
            raise InvalidRequestError(f"a message must be a JSON object (got {_kind(message)})")
        pieces.append(str(message.get("role")))
        content = message.get("content")
        if isinstance(content, str):
            pieces.append(content)
        elif isinstance(content, list):
            pieces.extend(_texts(content))
    return pieces


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            yield text


def _prompt(written: dict[str, Any]) -> list[str]:
    """Return the texts of a prompt; token ids count as a text of their length."""
    prompt = written.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise InvalidRequestError(f"prompt must be a string, or a list that is not empty (got {_kind(prompt)})")
    if isinstance(prompt[0], int):
        return [_as_text(prompt)]
    return [piece if isinstance(piece, str) else _as_text(piece) for piece in prompt]


def _as_text(token_ids: Any) -> str:
    """Return a text of as many characters as the tokens stand for, equal where they are equal."""
    if not isinstance(token_ids, list):
        raise InvalidRequestError(f"a prompt must be a string or a list of token ids (got {_kind(token_ids)})")
    return "".join(f"{token!s:.{CHARS_PER_TOKEN}}".rjust(CHARS_PER_TOKEN) for token in token_ids)


def _answer_tokens(written: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if isinstance(limit := written.get(name), int):
            break
    else:
        limit = ANSWER_TOKENS
    choices = written.get("n")
    answers = min(choices, MOST_CHOICES) if isinstance(choices, int) and choices > 1 else 1
    return min(max(1, limit), MOST_ANSWER_TOKENS) * answers


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool() | int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "an object"


BLOCK_BYTES: Final = 512
"""About 128 tokens: what is shared below that is computed again sooner than it is looked up."""

MOST_BLOCKS: Final = 16
"""Of 8 KiB together: longer prompts that are equal so far rarely differ in where they were computed before."""


def prefixes_of(pieces: Iterable[str]) -> tuple[int, ...]:
    """Return one rolling hash for each whole block that a text begins with, the shortest beginning first.

    Two texts have as many hashes in common as they have equal blocks at their beginning. Costs nothing beyond the
    first 8 KiB. A collision sends a request to another worker than it might have gone to, and nothing else.

    Args:
        pieces: of the text, in order; where one ends counts, too.
    """
    beginning = bytearray()
    for piece in pieces:
        beginning += piece[: BLOCK_BYTES * MOST_BLOCKS].encode("utf-8", "surrogatepass")
        beginning.append(0)
        if len(beginning) >= BLOCK_BYTES * MOST_BLOCKS:
            break
    if len(beginning) < BLOCK_BYTES:
        return ()
    view = memoryview(beginning)
    found: list[int] = []
    rolled = 0
    for end in range(BLOCK_BYTES, min(len(beginning), BLOCK_BYTES * MOST_BLOCKS) + 1, BLOCK_BYTES):
        rolled = crc32(view[end - BLOCK_BYTES : end], rolled)
        found.append(rolled)
    return tuple(found)
