"""The conversation between an environment and a model: messages out, replies back, typed failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from headgate.core.rates import RateNote
from headgate.core.record import record
from headgate.core.sample import ErrorKind


@record
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
"""The counts of each reply, summed over an episode."""


@record
class ChatReply:
    """An answered chat request.

    Attributes:
        text: the model's answer.
        prompt_tokens: as counted by the endpoint; 0 when it does not report them.
        completion_tokens: likewise.
        latency_s: duration of the attempt that was answered.
        first_token_s: time to the first token where the answer was streamed, else None.
        wait_s: time spent waiting for admission and back-off before that attempt.
        attempts: requests sent for this reply, retries included.
        served_model: the model that answered, as the endpoint names it; empty where it does not.
        system_fingerprint: fingerprint of the configuration that it answered with, likewise.
        cached_tokens: prompt tokens that the endpoint had in its cache; at most `prompt_tokens`.
        reasoning_tokens: completion tokens spent on reasoning; at most `completion_tokens`.
        billed_micro: the price that the provider reports as billed, in millionths; None where it reports none.
        lane: the lane of the request: `now` or `batch`.
        cost_micro: its cost in millionths, as billed, else by the model's prices; None where neither is known.
        told: the provider's limits per minute, as far as the answer states them.
        finish_reason: why it ended, as the endpoint reports it: `stop`, `length` at the token limit, ….
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_s: float = 0.0
    first_token_s: float | None = None
    wait_s: float = 0.0
    attempts: int = 1
    served_model: str = ""
    system_fingerprint: str = ""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    billed_micro: int | None = None
    lane: str = "now"
    cost_micro: int | None = None
    told: tuple[RateNote, ...] = ()
    finish_reason: str = ""

    def booked(self, wait_s: float, attempts: int, cost_micro: int | None) -> ChatReply:
        """Return it with the values that only the run knows; faster than `dataclasses.replace`."""
        usage = (self.text, self.prompt_tokens, self.completion_tokens, self.latency_s, self.first_token_s)
        served = (self.served_model, self.system_fingerprint, self.cached_tokens, self.reasoning_tokens)
        return ChatReply(
            *usage, wait_s, attempts, *served, self.billed_micro, self.lane, cost_micro, self.told, self.finish_reason
        )


class ChatError(Exception):
    """A chat request that was not answered, after every retry that its policy allows.

    Attributes:
        kind: class of the error, which says what is responsible.
        status: HTTP status, None when there was no answer.
        retry_after_s: the wait that the provider asked for, None when it asked for none.
        attempts: requests sent, retries included.
        wait_s: time spent waiting for admission and back-off.
        reply: an answer that came but cannot be used: it was paid for, so its cost is booked.
        told: the provider's limits per minute, as far as it stated them.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        attempts: int = 1,
        wait_s: float = 0.0,
        reply: ChatReply | None = None,
        told: tuple[RateNote, ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.attempts = attempts
        self.wait_s = wait_s
        self.reply = reply
        self.told = told


class Chat(Protocol):
    """Answers one conversation: a model behind its endpoint, or a test double."""

    async def __call__(self, messages: Sequence[Message]) -> ChatReply:
        """Return the reply to `messages`; raises `ChatError` when there is none."""
