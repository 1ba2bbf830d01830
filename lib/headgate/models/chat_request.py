"""A chat request as our own endpoint receives it, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headgate.core import Message
from headgate.models.task_header import TASK_HEADER, TaskReference

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
