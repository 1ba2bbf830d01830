"""The tools of one episode: what the model is told of them, and what comes of its calls."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from headgate.environments.tools.calls import CLOSING, OPENING, CallProblem, ToolCall, read_call

RESULT_CHARS: Final = 4_000
"""Of a result that the model is shown; the middle of a longer one is left out."""

_SHOWN_PROBLEMS: Final = 3

Arguments = TypeVar("Arguments", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """Something that a model may call.

    Attributes:
        name: as the model calls it.
        description: what it does, for the model.
        arguments: pydantic model of its arguments; forbid extra fields in it, so that a misspelt one is told.
        call: does it and returns what the model is told. What it raises is the environment's failure: a mistake of the
            model's belongs into the text that it returns.
    """

    name: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Arguments], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        """What the model is told of it, in the form that OpenAI's API gave to tools."""
        parameters = self.arguments.model_json_schema()
        for ours in ("title", "description", "additionalProperties"):  # words for readers of the code
            parameters.pop(ours, None)
        for field in parameters.get("properties", {}).values():
            field.pop("title", None)
        described = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": described}


class Toolbox:
    """The tools of an episode. Holds no state of its own.

    Calls are text within replies and not the `tools` of a chat request, so that any model can be asked, and a
    conversation is the same at every provider.
    """

    def __init__(self, tools: Sequence[Tool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def instructions(self) -> str:
        """What the model is told: the tools, one JSON schema a line, and how they are called."""
        schemas = "\n".join(orjson.dumps(tool.schema).decode() for tool in self._tools.values())
        return (
            f"You may call these tools, one call per reply:\n<tools>\n{schemas}\n</tools>\n"
            f'A call is a JSON object with "name" and "arguments" between {OPENING} and {CLOSING}. '
            "The result comes in the next message, between <tool_response> and </tool_response>."
        )

    async def answered(self, reply: str) -> str | None:
        """Return the message that answers the call in `reply`, or None where it holds none."""
        match read_call(reply):
            case None:
                return None
            case CallProblem(says):
                return _response(says)
            case ToolCall() as call:
                return _response(await self._called(call))

    async def _called(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            near = difflib.get_close_matches(call.name, self._tools, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"There is no tool {call.name[:80]!r}{hint}. The tools are {', '.join(self._tools)}."
        try:
            arguments = tool.arguments.model_validate(call.arguments)
        except ValidationError as error:
            return f"The arguments of {call.name} are wrong: {_told(error)}."
        return shortened(await tool.call(arguments))


def shortened(text: str, limit: int = RESULT_CHARS) -> str:
    """Return `text`, without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"


def tool_call(name: str, **arguments: object) -> str:
    """Return a call as a model writes it; for baselines and tests."""
    return f"{OPENING}{orjson.dumps({'name': name, 'arguments': arguments}).decode()}{CLOSING}"


def _response(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def _told(error: ValidationError) -> str:
    told = [f"{'.'.join(map(str, one['loc'])) or 'they'}: {one['msg']}" for one in error.errors()]
    more = f" and {len(told) - _SHOWN_PROBLEMS} more" if len(told) > _SHOWN_PROBLEMS else ""
    return "; ".join(told[:_SHOWN_PROBLEMS]) + more
