"""The client that a verifiers rollout uses instead of an endpoint. Imports verifiers: only for `verifier_tasks`."""

from __future__ import annotations

from typing import Any, NoReturn

from verifiers.clients import Client  # type: ignore[import-untyped]
from verifiers.types import Messages, Response, ResponseMessage, SamplingArgs, Tool  # type: ignore[import-untyped]

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate_environments.collections.resumed import Ask

_NO_ENDPOINT = "a rollout asks for a native request or response, but it talks to no endpoint and so has none"


class AskingClient(Client[Any, Any, Any, Any]):  # type: ignore[misc]
    """Passes each prompt of one rollout to `ask`. Lives as long as the rollout."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(None)
        self._ask = ask

    async def get_response(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **_: Any
    ) -> Response:
        """Return the model's reply to `prompt`.

        Raises:
            EnvironmentFailedError: if the environment gives the model tools, or sends anything but text.
        """
        del sampling_args
        if tools:
            raise EnvironmentFailedError("it gives the model tools, which text replies cannot call")
        reply = await self._ask([_told(message) for message in prompt])
        said = ResponseMessage(role="assistant", content=reply, finish_reason="stop", is_truncated=False)
        return Response(id="headgate", created=0, model=model, message=said)

    def setup_client(self, config: Any) -> None:
        """Set up nothing: there is no endpoint."""
        del config

    async def close(self) -> None:
        """Free nothing."""

    async def _never(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to translate for an endpoint: `get_response` uses none."""
        raise TypeError(_NO_ENDPOINT)

    to_native_tool = to_native_prompt = get_native_response = _never
    raise_from_native_response = from_native_response = _never


def _told(message: Any) -> Message:
    if message.role not in {"system", "user", "assistant"} or not isinstance(message.content, str):
        raise EnvironmentFailedError(f"it sends the model a message of role {message.role!r} that is not only text")
    return Message(message.role, message.content)
