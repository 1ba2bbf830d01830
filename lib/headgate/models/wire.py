"""The responses of our own endpoint: OpenAI-compatible completions, chunks, listings and errors, as bytes."""

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
"""Option of a model whose endpoint is one of ours, which makes the client send it the header."""


@record
class TaskReference:
    """The task to which a request belongs."""

    environment: str
    index: int
    seed: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.environment}/{self.index}/{self.seed}/{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> TaskReference:
        """Return the reference in `text`; an environment's name may contain slashes.

        Raises:
            ValueError: unless it is `environment/index/seed/sequence` with whole numbers >= 0.
        """
        environment, *numbers = text.rsplit("/", 3)
        if not environment or len(numbers) != 3 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(f"{TASK_HEADER} must be environment/index/seed/sequence (got {text[:100]!r})")
        index, seed, sequence = map(int, numbers)
        return cls(environment, index, seed, sequence)


_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


class BadRequestError(Exception):
    """A request that no OpenAI-compatible server would accept; the message says why."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request: its content, its key, and its task (None if it names none); tool calls are text."""

    model: str
    messages: tuple[Message, ...]
    streams: bool
    wants_usage: bool
    key: str
    task: TaskReference | None
    has_tools: bool = False


def read_request(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """Return the request in `body` and `headers`.

    Raises:
        BadRequestError: stating what is wrong with it.
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
        has_tools=bool(document.get("tools")),
    )


def _items(messages: Any) -> list[Any]:
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message")
    return messages


def _message(item: Any) -> Message:
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        raise BadRequestError(f"each message needs a role of {', '.join(sorted(_ROLES))}")
    if item["role"] == "tool" or item.get("tool_calls"):
        from headgate.environments import tool_forms  # noqa: PLC0415 - a simulated model needs no environment

        if (told := tool_forms.text_of_fields(item)) is not None:
            return told
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
    """One answer of the endpoint. Tokens are counted as words: a baseline has no tokenizer.

    A tool call in its text goes into `tool_calls` if the request `has_tools`.
    """

    model: str
    text: str
    prompt_tokens: int
    fingerprint: str
    has_tools: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-headgate-{next(_number)}")

    def whole(self) -> bytes:
        """Return the body of an unstreamed answer."""
        message = self._message()
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(message)}
        return orjson.dumps(self._document("chat.completion", [choice], usage=self._usage()))

    def chunks(self, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the server-sent events of a streamed answer, including the final `[DONE]`."""
        message = self._message()
        text, calls = message["content"] or "", message.get("tool_calls", ())
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in _pieces(text):
            yield self._chunk({"content": piece})
        for number, call in enumerate(calls):
            function = call["function"]
            begun = call | {"index": number, "function": function | {"arguments": ""}}
            yield self._chunk({"tool_calls": [begun]})
            for piece in _pieces(function["arguments"]):
                yield self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
        yield self._chunk({}, finish_reason=_finish_reason(message))
        if with_usage:
            yield _event(self._document("chat.completion.chunk", [], usage=self._usage()))
        yield b"data: [DONE]\n\n"

    def _message(self) -> dict[str, Any]:
        if self.has_tools:
            from headgate.environments import tool_forms, tools  # noqa: PLC0415 - as above

            if isinstance(call := tools.read_call(self.text), tools.ToolCall):
                return tool_forms.native_message(self.text, call, f"call{next(_number):05d}")
        return {"role": "assistant", "content": self.text}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
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


def _pieces(text: str) -> Iterator[str]:
    size = max(16, -(-len(text) // _CHUNKS_AT_MOST))
    return (text[start : start + size] for start in range(0, len(text), size))


def _finish_reason(message: Mapping[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def count_tokens(text: str) -> int:
    """Return the number of words in `text`."""
    return len(text.split())


def listing(models: dict[str, str]) -> bytes:
    """Return the body of `GET /v1/models`, from model names and their owners."""
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in models.items()
            ],
        }
    )


def error_body(message: str, kind: str, code: int) -> bytes:
    """Return the body of an error in OpenAI's form."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"
