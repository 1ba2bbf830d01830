"""What our own endpoint writes: OpenAI-compatible completions, chunks, listings and errors, as bytes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from headgate.core import Message, record

TASK_HEADER: Final = "X-Headgate-Task"
TASK_HEADER_OPTION: Final = "headgate_task_header"
"""Option of a model whose endpoint is one of ours: the header is sent to it."""


@record
class TaskReference:
    """Which task a request belongs to."""

    environment: str
    index: int
    seed: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.environment}/{self.index}/{self.seed}/{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> TaskReference:
        """Return the reference in `text`; an environment's own name may hold slashes.

        Raises:
            ValueError: unless it is `environment/index/seed/sequence` with whole numbers >= 0.
        """
        environment, *numbers = text.rsplit("/", 3)
        if not environment or len(numbers) != 3 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(f"{TASK_HEADER} must be environment/index/seed/sequence (got {text[:100]!r})")
        index, seed, sequence = map(int, numbers)
        return cls(environment, index, seed, sequence)


_ROLES: Final = frozenset({"system", "user", "assistant"})


class BadRequestError(Exception):
    """A request that no OpenAI-compatible server would take; the message says why."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What was asked, by whom, and about which task (None when the request does not say)."""

    model: str
    messages: tuple[Message, ...]
    streams: bool
    wants_usage: bool
    key: str
    task: TaskReference | None


def read_request(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """Return the request in `body` and `headers`.

    Raises:
        BadRequestError: naming what is wrong with it.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("model"), str):
        raise BadRequestError("the body must be an object with a model")
    options = document.get("stream_options")
    return ChatRequest(
        model=document["model"],
        messages=tuple(_message(item) for item in _items(document.get("messages"))),
        streams=bool(document.get("stream")),
        wants_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        key=headers.get("Authorization", "").removeprefix("Bearer "),
        task=_task(headers.get(TASK_HEADER)),
    )


def _items(messages: Any) -> list[Any]:
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message")
    return messages


def _message(item: Any) -> Message:
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        raise BadRequestError(f"each message needs a role of {', '.join(sorted(_ROLES))}")
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise BadRequestError("each message needs text as its content")
    return Message(item["role"], content)


def _task(header: str | None) -> TaskReference | None:
    if header is None:
        return None
    try:
        return TaskReference.parse(header)
    except ValueError as error:
        raise BadRequestError(str(error)) from None


_CHUNKS_AT_MOST: Final = 64
_number = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of the endpoint. Tokens are counted as words: a baseline has no tokenizer."""

    model: str
    text: str
    prompt_tokens: int
    fingerprint: str
    id: str = field(default_factory=lambda: f"chatcmpl-headgate-{next(_number)}")

    def whole(self) -> bytes:
        """Return the body of an answer in one piece."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self.text},
            "logprobs": None,
            "finish_reason": "stop",
        }
        return orjson.dumps(self._document("chat.completion", [choice], usage=self._usage()))

    def chunks(self, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the server-sent events of a streamed answer, the closing `[DONE]` included."""
        yield self._chunk({"role": "assistant", "content": ""})
        size = max(16, -(-len(self.text) // _CHUNKS_AT_MOST))
        for start in range(0, len(self.text), size):
            yield self._chunk({"content": self.text[start : start + size]})
        yield self._chunk({}, finish_reason="stop")
        if with_usage:
            yield _event(self._document("chat.completion.chunk", [], usage=self._usage()))
        yield b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event(self._document("chat.completion.chunk", [choice]))

    def _document(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **more,
        }

    def _usage(self) -> dict[str, int]:
        completion_tokens = count_tokens(self.text)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        }


def count_tokens(text: str) -> int:
    """Return the number of words in `text`."""
    return len(text.split())


def listing(models: dict[str, str]) -> bytes:
    """Return the body of `GET /v1/models`: names with what stands behind them."""
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in models.items()
            ],
        }
    )


def error_body(message: str, kind: str, code: int) -> bytes:
    """Return the body of an error as OpenAI shapes it."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"
