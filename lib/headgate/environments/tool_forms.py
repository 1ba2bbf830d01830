"""Two forms of a conversation with tools: as text, which is stored, and in the tool fields of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headgate.core import Message
from headgate.environments.tools import (
    CALL_CHARS,
    CLOSING,
    LISTED_AFTER,
    LISTED_BEFORE,
    OPENING,
    RESPONSE_CLOSING,
    RESPONSE_OPENING,
    ToolCall,
    read_call,
    tool_response,
)

_GIVEN: Final = "You may call the tools that you are given, one call per reply."
"""Replaces the instructions, which a chat template generates from `tools`."""


@dataclass(frozen=True, slots=True)
class NativeForm:
    """The messages and tools of a chat request in their native fields.

    Attributes:
        messages: messages with the fields `tool_calls` and `tool_call_id` where a tool was called.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


def native_form(messages: Sequence[Message]) -> NativeForm | None:
    """Return a conversation with its tools in fields; None if its environment offers none.

    A call that cannot be read, or of an unknown tool, stays text, and so does its answer: servers refuse a conversation
    that has it in a field.
    """
    tools: dict[str, dict[str, Any]] = {}
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            break
        content, tools = (not tools and _offered(message.content)) or (message.content, tools)
        written.append({"role": message.role, "content": content})
    if not tools:
        return None
    rest = iter(range(len(written), len(messages)))
    for number in rest:
        message = messages[number]
        response = _response_in(messages[number + 1]) if number + 1 < len(messages) else None
        call = read_call(message.content) if message.role == "assistant" and response is not None else None
        if not isinstance(call, ToolCall) or call.name not in tools or response is None:
            written.append({"role": message.role, "content": message.content})
            continue
        call_id = f"call{number:05d}"  # nine letters and digits, which the strictest provider accepts
        written.append(native_message(message.content, call, call_id))
        written.append({"role": "tool", "tool_call_id": call_id, "content": response})
        next(rest)
    return NativeForm(written, list(tools.values()))


def native_message(reply: str, call: ToolCall, call_id: str) -> dict[str, Any]:
    """Return a model's message that replies with `call`."""
    start = reply.rfind(OPENING)
    beside = reply[:start].removesuffix("\n") + reply[reply.find(CLOSING, start) + len(CLOSING) :]
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": beside or None, "tool_calls": calls}


def text_with_calls(text: str, calls: Sequence[tuple[str, object]]) -> str:
    """Return a reply as text: what the model said, then its calls, each with name and arguments.

    Arguments that are not JSON are kept as they came, so that the reader of the call reports it to the model.
    """
    written = [_call_as_text(name, arguments) for name, arguments in calls]
    return "\n".join([*([text.removesuffix("\n")] if text else []), *written])


def text_of_fields(message: dict[str, Any]) -> Message | None:
    """Return a message with tool fields as text; None for one without. Reverses `native_form`."""
    content = message.get("content")
    said = content if isinstance(content, str) else ""
    if message.get("role") == "tool":
        return Message("user", tool_response(said))
    calls = calls_in(message.get("tool_calls"))
    return Message("assistant", text_with_calls(said, calls)) if calls else None


def calls_in(value: object) -> list[tuple[str, object]]:
    """Return names and arguments in the `tool_calls` of a message; a call without a name is left out."""
    functions = [one.get("function") for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    named = [one for one in functions if isinstance(one, dict) and isinstance(one.get("name"), str) and one["name"]]
    return [(one["name"], one.get("arguments")) for one in named]


def _call_as_text(name: str, arguments: object) -> str:
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = orjson.loads(arguments) if len(arguments) <= CALL_CHARS else orjson.Fragment(arguments)
        except orjson.JSONDecodeError:
            arguments = orjson.Fragment(arguments)
    elif not arguments:
        arguments = {}  # how several providers write a call without arguments
    return f"{OPENING}{orjson.dumps({'name': name, 'arguments': arguments}).decode()}{CLOSING}"


def _offered(text: str) -> tuple[str, dict[str, dict[str, Any]]] | None:
    """Return a text without a toolbox's instructions, and the tools listed in them, by name."""
    before, found, rest = text.partition(LISTED_BEFORE)
    listed, ended, after = rest.partition(LISTED_AFTER)
    if not found or not ended:
        return None
    try:
        tools = [orjson.loads(line) for line in listed.split("\n")]
        return f"{before}{_GIVEN}{after}", {str(tool["function"]["name"]): tool for tool in tools}
    except (orjson.JSONDecodeError, LookupError, TypeError):  # another text that looks similar
        return None


def _response_in(message: Message) -> str | None:
    """Return a tool's result, if a message is that and nothing else."""
    text = message.content
    if message.role != "user" or not text.startswith(RESPONSE_OPENING) or not text.endswith(RESPONSE_CLOSING):
        return None
    return text[len(RESPONSE_OPENING) : len(text) - len(RESPONSE_CLOSING)]
