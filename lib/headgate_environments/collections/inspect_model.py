"""The models that an inspect task can ask: the sampled model, and a judge. Imports inspect_ai."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import orjson
from inspect_ai._eval.task.sandbox import sandboxenv_context
from inspect_ai.dataset import Sample
from inspect_ai.log._samples import active_sample
from inspect_ai.log._transcript import Transcript, init_transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.model._model import init_active_model, init_model_roles
from inspect_ai.model._model_output import ChatCompletionChoice
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import SandboxEnvironmentSpec

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate.environments.tools import (
    LISTED_AFTER,
    LISTED_BEFORE,
    OPENING,
    CallProblem,
    read_call,
    tool_call,
    tool_response,
)
from headgate_environments.collections.inspect_box import NAME
from headgate_environments.collections.resumed import MAX_ROUNDS, Ask

_ROLES: Final = ("system", "user", "assistant")
_MANY: Final = 1_000_000


class RoundsOverError(Exception):
    """The solver asks for more replies than an episode has; whatever it has reached is scored."""


class GraderAskedError(Exception):
    """A scorer asks its grader, which is the run's judge: the judge is asked once the episode has ended.

    Attributes:
        question: the messages for the grader.
    """

    def __init__(self, question: tuple[Message, ...]) -> None:
        super().__init__("a grader is asked")
        self.question = question


class AskingModel(ModelAPI):
    """Asks the model of one episode. Tool calls are text in its replies, as in any environment with tools.

    Attributes:
        output: the latest output.
    """

    def __init__(self, model_name: str, ask: Ask, **_: Any) -> None:
        super().__init__(model_name)
        self.output = ModelOutput()
        self._ask = ask
        self._rounds = 0
        self._listed = ""
        self._replies: dict[str | None, tuple[str, str]] = {}

    def max_connections(self) -> int:
        """Return a bound that is never reached: requests are admitted where they are sent."""
        return _MANY

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - given by name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Return the model's reply.

        Raises:
            RoundsOverError: if it has given all the replies that an episode allows.
            EnvironmentFailedError: if the tools have changed since the first request, or a message's role is unknown.
        """
        del config
        listed = "\n".join(_schema(tool) for tool in tools)
        if self._rounds and listed != self._listed:
            raise EnvironmentFailedError("it changes the model's tools during the episode")
        if self._rounds == MAX_ROUNDS:
            raise RoundsOverError
        self._rounds += 1
        self._listed = listed
        reply = await self._ask(self._conversation(input))
        self.output = self._output(reply, may_call=bool(tools) and tool_choice != "none")
        return self.output

    def _conversation(self, messages: Sequence[ChatMessage]) -> list[Message]:
        told = [self._told(message) for message in messages]
        if not self._listed:
            return told
        offer = f"{LISTED_BEFORE}{self._listed}{LISTED_AFTER}"
        if told and told[0].role == "system":
            return [Message("system", f"{told[0].content}\n\n{offer}"), *told[1:]]
        return [Message("system", offer), *told]

    def _told(self, message: ChatMessage) -> Message:
        if isinstance(message, ChatMessageTool):
            return Message("user", tool_response(message.error.message if message.error else message.text))
        if message.role not in _ROLES:
            raise EnvironmentFailedError(f"a solver sends the model a message with the role {message.role!r}")
        text, reply = self._replies.get(message.id, ("", ""))
        if isinstance(message, ChatMessageAssistant) and message.id in self._replies and message.text == text:
            return Message("assistant", reply)
        calls = (message.tool_calls or []) if isinstance(message, ChatMessageAssistant) else []
        written = [tool_call(call.function, **call.arguments) for call in calls]
        return Message(message.role, "\n".join(filter(None, (message.text, *written))))

    def _output(self, reply: str, *, may_call: bool) -> ModelOutput:
        call = read_call(reply) if may_call else None
        text, calls = reply, None
        if call is not None:
            text, number = reply[: reply.rfind(OPENING)].rstrip(), f"call{self._rounds:05d}"
            if isinstance(call, CallProblem):
                calls = [InspectCall(id=number, function="unreadable", arguments={}, parse_error=call.says)]
            else:
                calls = [InspectCall(id=number, function=call.name, arguments=dict(call.arguments))]
        message = ChatMessageAssistant(content=text, tool_calls=calls, source="generate")
        self._replies[message.id] = (text, reply)
        choice = ChatCompletionChoice(message=message, stop_reason="tool_calls" if calls else "stop")
        return ModelOutput(model=self.model_name, choices=[choice])


class Grader(ModelAPI):
    """Stands in for the run's judge."""

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - given by name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Raise the question instead of asking a model.

        Raises:
            GraderAskedError: always, with the question.
        """
        del tools, tool_choice, config
        raise GraderAskedError(tuple(Message(message.role, message.text) for message in input))  # type: ignore[arg-type]


modelapi(name="headgate")(lambda: AskingModel)
modelapi(name="headgate-judge")(lambda: Grader)


def asking_model(ask: Ask) -> tuple[Model, AskingModel]:
    """Return the model that this task's solvers get, however they ask for it and whatever variables say."""
    model = get_model("headgate/model", memoize=False, ask=ask)
    _only(model)
    assert isinstance(model.api, AskingModel)
    return model, model.api


@contextlib.asynccontextmanager
async def begun(task: str, sample: Sample, *, has_sandbox: bool) -> AsyncIterator[None]:
    """Make inspect treat the block as the run of a sample: agents look it up, and events are recorded for it.

    If the task has a sandbox, it exists inside the block, with the sample's files.
    """
    sample.sandbox = SandboxEnvironmentSpec(NAME) if has_sandbox else None
    transcript = Transcript()
    init_transcript(transcript)  # otherwise events of all episodes would stay in memory as long as this process lives
    limits = dict.fromkeys(("message_limit", "token_limit", "cost_limit", "time_limit", "working_limit"))
    about = {"task": task, "model": "headgate/model", "sample": sample, "epoch": 1, "transcript": transcript}
    nowhere = {"log_location": "", "eval_id": "", "sample_uuid": "", "fails_on_error": False}
    box = sandboxenv_context("task", sample.sandbox, None, True, sample) if has_sandbox else contextlib.nullcontext()
    async with box, active_sample(**about, **limits, **nowhere):  # type: ignore[arg-type]
        yield


def grader_only() -> None:
    """Make the judge the only model that scorers can ask."""
    _only(get_model("headgate-judge/judge", memoize=False))


def _only(model: Model) -> None:
    init_active_model(model, GenerateConfig())
    init_model_roles({})


def _schema(tool: ToolInfo) -> str:
    parameters = tool.parameters.model_dump(exclude_none=True, exclude={"additionalProperties"})
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return orjson.dumps({"type": "function", "function": function}).decode()
