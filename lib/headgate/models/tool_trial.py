"""Whether an endpoint takes the field `tools`: tried once for each model, and text where it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model
from headgate.environments import tool_forms

Send = Callable[[tool_forms.NativeForm | None], Awaitable[tuple[ChatReply, int]]]
"""Sends a conversation, as text or with its tools in fields; returns the reply, and how many calls came in a field."""


_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


class ToolTrials:
    """Asks models in the form in which they take tools. Owned by what sends requests.

    The field `tools` is tried with the first conversation that has any. An endpoint that refuses it, or replies without
    a call in the field, is asked the same as text, which is the reply that counts, and from then on always.
    """

    def __init__(self) -> None:
        self._takes_fields: dict[str, bool] = {}

    async def ask(self, model: Model, messages: Sequence[Message], send: Send) -> ChatReply:
        """Return the reply to `messages`; what a trial cost is among its tokens and its bill.

        Raises:
            ChatError: as `send` does; of a refused trial, what the endpoint says to text.
        """
        key = model.key
        is_text = model.tools == "text" or self._takes_fields.get(key) is False or "tools" in dict(model.options)
        native = None if is_text else tool_forms.native_form(messages)
        if native is None:
            return (await send(None))[0]
        if model.tools == "native" or key in self._takes_fields:
            return (await send(native))[0]
        tried: ChatReply | None = None
        try:
            tried, calls = await send(native)
        except ChatError as error:
            if not _may_be_of_tools(error):
                raise
        else:
            if calls or self._takes_fields.get(key):
                self._takes_fields[key] = True
                return tried
        reply, _ = await send(None)
        self._takes_fields.setdefault(key, False)
        if tried is None:
            return reply
        bills = (tried.billed_micro, reply.billed_micro)
        return replace(
            reply,
            **{name: getattr(tried, name) + getattr(reply, name) for name in _COUNTS},
            billed_micro=None if None in bills else sum(filter(None, bills)),
        )


def _may_be_of_tools(error: ChatError) -> bool:
    """Return whether a refusal may be of the field; some servers tell of it as a failure of theirs."""
    return error.kind is ErrorKind.BAD_REQUEST or ((error.status or 0) >= 500 and "tool" in str(error).lower())
