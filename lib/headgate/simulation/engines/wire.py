"""OpenAI's formats as both APIs read and write them: requests, complete answers, server-sent events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headgate.simulation.engines.core import EngineRequest

DONE: Final = b"data: [DONE]\n\n"
CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"


class RefusedError(Exception):
    """A request that the engine refuses, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request body.

    Attributes:
        model: model name as given; empty if there is none.
        prompt: words of the prompt.
        max_tokens: limit of the answer; None if there is none.
        ignores_end: whether the model must not stop by itself.
        streams: whether the answer is a stream of events.
        wants_usage: whether the last event has token counts.
    """

    document: Mapping[str, Any]
    model: str
    prompt: Sequence[str]
    max_tokens: int | None
    ignores_end: bool
    streams: bool
    wants_usage: bool

    def request(self, request_id: str, reply_tokens: int, token_room: int) -> EngineRequest:
        """Return the engine's request for it.

        Raises:
            RefusedError: the prompt could never fit.
        """
        if len(self.prompt) >= token_room:
            raise RefusedError(400, f"the prompt has {len(self.prompt)} tokens; there is room for {token_room}")
        most = min(self.max_tokens or token_room, token_room - len(self.prompt))
        natural = most if self.ignores_end and self.max_tokens else reply_tokens
        return EngineRequest(request_id, self.prompt, most, natural)


def read_openai(path: str, body: bytes) -> Asked:
    """Return the parsed body of a request to `/v1/chat/completions` or `/v1/completions`.

    Raises:
        RefusedError: the body is invalid; the message says how.
    """
    document = read_document(body)
    options = document.get("stream_options")
    return Asked(
        document=document,
        model=str(document.get("model", "")),
        prompt=words_of(_chat_text(document) if path == CHAT else document.get("prompt")),
        max_tokens=_limit(document.get("max_completion_tokens", document.get("max_tokens"))),
        ignores_end=bool(document.get("ignore_eos")),
        streams=bool(document.get("stream")),
        wants_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def read_document(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`; an empty one if there is no body.

    Raises:
        RefusedError: it is not a JSON object.
    """
    try:
        document = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise RefusedError(400, "the body must be a JSON object")
    return document


def words_of(text: object) -> tuple[str, ...]:
    """Return the words of a prompt, at least one.

    Raises:
        RefusedError: it is not text.
    """
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if not isinstance(text, str):
        raise RefusedError(400, "one prompt of text is needed")
    return tuple(text.split()) or ("",)


def event(document: Mapping[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + orjson.dumps(document) + b"\n\n"


@dataclass(slots=True)
class OpenAIAnswer:
    """Writes the answer of one request in OpenAI's format, complete or in pieces."""

    path: str
    answer_id: str
    model: str
    request: EngineRequest
    _sent: int = 0

    def whole(self) -> dict[str, Any]:
        """Return the body of a complete answer."""
        text = self.request.text()
        content = {"message": {"role": "assistant", "content": text}} if self.path == CHAT else {"text": text}
        return self._document("", [self._choice(content, self.request.finish)], usage=self._usage())

    def opening(self) -> bytes:
        """Return what is sent before the first token: the role of a chat."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.path == CHAT else b""

    def piece(self) -> bytes:
        """Return an event with the text generated since the last one; empty if there is none."""
        text, self._sent = self.request.text(self._sent), self.request.generated
        if not text:
            return b""
        return self._chunk({"delta": {"content": text}} if self.path == CHAT else {"text": text})

    def closing(self, *, with_usage: bool) -> bytes:
        """Return the events that end an answer."""
        last = self._chunk({"delta": {}} if self.path == CHAT else {"text": ""}, self.request.finish)
        usage = event(self._document(".chunk", [], usage=self._usage())) if with_usage else b""
        return last + usage + DONE

    def _chunk(self, content: dict[str, Any], finish: str | None = None) -> bytes:
        return event(self._document(".chunk", [self._choice(content, finish)]))

    def _choice(self, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish}

    def _document(self, suffix: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.path == CHAT else "text_completion"
        return {
            "id": self.answer_id,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
            **more,
        }

    def _usage(self) -> dict[str, int]:
        prompt, generated = len(self.request.prompt), self.request.generated
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _chat_text(document: Mapping[str, Any]) -> str:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError(400, "messages must be a list with at least one message")
    return " ".join(_content(message) for message in messages)


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise RefusedError(400, "each message needs text as its content")
    return content


def _limit(written: object) -> int | None:
    if written is None:
        return None
    if not isinstance(written, int) or written < 1:
        raise RefusedError(400, f"max_tokens must be at least 1, got {written}.")
    return written
