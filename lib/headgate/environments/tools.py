"""The tools of one episode: their description for the model, and the handling of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headgate.core.errors import did_you_mean, some_of
from headgate.environments.answers import without_thinking
from headgate.environments.sandbox import SANDBOX, Limits, Sandbox

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"
RESPONSE_OPENING: Final = "<tool_response>\n"
RESPONSE_CLOSING: Final = "\n</tool_response>"

LISTED_BEFORE: Final = "You may call these tools, one call per reply:\n<tools>\n"
LISTED_AFTER: Final = (
    '\n</tools>\nA call is a JSON object with "name" and "arguments" between <tool_call> and </tool_call>. '
    "The result comes in the next message, between <tool_response> and </tool_response>."
)
"""The schemas come between the two, one per line. Requests that have a field for tools leave all three out."""

CALL_CHARS: Final = 20_000
"""A longer call is not read: no program that a model writes for one step comes close."""

RESULT_CHARS: Final = 4_000
"""Characters of a result that the model sees; the middle of a longer one is left out."""

_SHOWN_PROBLEMS: Final = 3

Arguments = TypeVar("Arguments", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it; its arguments are not validated yet."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallProblem:
    """Why a call cannot be read, as a sentence for the model."""

    says: str


def read_call(reply: str) -> ToolCall | CallProblem | None:
    """Return the one call in `reply`, what is wrong with it, or None if there is none; reasoning is ignored.

    Two calls in one reply are a problem: the second depends on a result that the model has not seen.
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


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A function that a model may call.

    Attributes:
        description: what it does, for the model.
        arguments: pydantic model of its arguments; it should forbid extra fields, so that misspelt ones are reported.
        call: runs it and returns the text for the model. An error that it raises is the environment's failure: mistakes
            of the model belong in the returned text.
    """

    name: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Arguments], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        """Its description for the model, in the tool format of OpenAI's API."""
        parameters = self.arguments.model_json_schema()
        for ours in ("title", "description", "additionalProperties"):  # meant for readers of the code
            parameters.pop(ours, None)
        for field in parameters.get("properties", {}).values():
            field.pop("title", None)
        described = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": described}


class Toolbox:
    """The tools of an episode. Stateless.

    For environments, calls are text within replies, so that any model can be used, and a conversation is the same at
    every provider. Where an endpoint supports the field `tools`, the client sends that in place of the instructions,
    and turns its calls back into text (`headgate.environments.tool_forms`).
    """

    def __init__(self, tools: Sequence[Tool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def instructions(self) -> str:
        """The text for the model: the tools, one JSON schema per line, and how to call them."""
        schemas = "\n".join(orjson.dumps(tool.schema).decode() for tool in self._tools.values())
        return f"{LISTED_BEFORE}{schemas}{LISTED_AFTER}"

    async def answered(self, reply: str) -> str | None:
        """Return the message that answers the call in `reply`, or None if it contains none."""
        match read_call(reply):
            case None:
                return None
            case CallProblem(says):
                return tool_response(says)
            case ToolCall() as call:
                return tool_response(await self._called(call))

    async def _called(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            hint = did_you_mean(call.name, self._tools)
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


def tool_response(text: str) -> str:
    """Return the message that tells the model the result of its call."""
    return f"{RESPONSE_OPENING}{text}{RESPONSE_CLOSING}"


def _told(error: ValidationError) -> str:
    told = [f"{'.'.join(map(str, one['loc'])) or 'they'}: {one['msg']}" for one in error.errors()]
    return some_of(told, _SHOWN_PROBLEMS, "; ")


STEP: Final = Limits(wall_s=10.0, cpu_s=5, memory_bytes=256 * 1024 * 1024, output_bytes=100_000)
"""Limits of one call: a step of an episode is not a long computation, and other episodes wait for the processor."""


class PythonArguments(BaseModel):
    """Arguments of the tool `python`."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="A whole Python program. Print what you want to see.")


def python_tool(
    stdin: str = "", about_stdin: str = "", *, limits: Limits = STEP, sandbox: Sandbox = SANDBOX
) -> Tool[PythonArguments]:
    """Return a tool that runs the model's Python program without network, files or other processes.

    Each call is a separate program: no state is kept from one to the next.

    Args:
        stdin: standard input of the programs.
        about_stdin: a sentence about it, for the model.
        limits: limits of one call.
        sandbox: where programs run.
    """

    async def run(arguments: PythonArguments) -> str:
        done = await sandbox.run(arguments.code, stdin, limits)
        printed = done.stdout if done.stdout.strip() else "(the program printed nothing)"
        return printed if done.is_clean else f"{printed}\n{done.stderr}\n{done.problem}"

    description = "Run a Python program; only the standard library is there, no network and no files."
    return Tool("python", f"{description} {about_stdin}".rstrip(), PythonArguments, run)
