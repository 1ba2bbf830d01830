"""Reading a tool call in a model's reply: one JSON object between `<tool_call>` tags, as open models are trained to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headgate.environments.answers import without_thinking

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"

CALL_CHARS: Final = 20_000
"""A longer call is not read: no program that a model writes for one step is nearly as long."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it; its arguments are not checked yet."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallProblem:
    """Why a call cannot be read, in a sentence for the model."""

    says: str


def read_call(reply: str) -> ToolCall | CallProblem | None:
    """Return the one call in `reply`, what is wrong with it, or None where there is none; thoughts are left out.

    Two calls in one reply are a problem: the second answers to a result that the model has not seen.
    """
    said = without_thinking(reply)
    start = said.find(OPENING)
    if start < 0:
        return None
    end = said.find(CLOSING, start)
    if end < 0:
        return CallProblem(f"The tool call has no {CLOSING}.")
    if said.find(OPENING, end) >= 0:
        return CallProblem("Only one tool call is allowed per reply; nothing was called.")
    written = said[start + len(OPENING) : end].strip()
    if len(written) > CALL_CHARS:
        return CallProblem(f"The tool call has {len(written)} characters, at most {CALL_CHARS} are read.")
    return _parsed(written)


def _parsed(written: str) -> ToolCall | CallProblem:
    try:
        call = orjson.loads(written)
    except orjson.JSONDecodeError as error:
        return CallProblem(f"The tool call is no JSON: {error}.")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return CallProblem('A tool call is a JSON object with "name" and "arguments".')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return CallProblem('The "arguments" of a tool call are a JSON object.')
    return ToolCall(call["name"], arguments)
