"""The words between an environment and a model: messages out, replies back, failures typed."""

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
"""What is counted of each reply, and summed over those of an episode."""


@record
class ChatReply:
    """An answered chat request.

    Attributes:
        text: what the model said.
        prompt_tokens: as the endpoint counts them; 0 when it does not say.
        completion_tokens: likewise.
        latency_s: of the attempt that was answered.
        first_token_s: time to the first token where the answer was streamed, else None.
        wait_s: spent waiting for admission and back-off before that attempt.
        attempts: requests sent for this reply, retries included.
        served_model: who answered, as the endpoint names it; empty where it does not.
        system_fingerprint: of the configuration that it answered with, likewise.
        cached_tokens: of the prompt tokens, those that the endpoint had in its cache; never more than all.
        reasoning_tokens: of the completion tokens, those that were thoughts, likewise.
        billed_micro: millionths that the provider says it billed for the answer; None where it does not say.
        lane: in which it was asked: `now`, or `batch`.
        cost_micro: what it cost: as billed, else by the model's prices; None where neither is known.
        told: what it told of the provider's limits per minute.
        finish_reason: why it ended, as the endpoint says: `stop`, `length` at the limit of tokens, ….
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
        """Return it with what a run knows of it, in less time than `dataclasses.replace` takes."""
        usage = (self.text, self.prompt_tokens, self.completion_tokens, self.latency_s, self.first_token_s)
        served = (self.served_model, self.system_fingerprint, self.cached_tokens, self.reasoning_tokens)
        return ChatReply(
            *usage, wait_s, attempts, *served, self.billed_micro, self.lane, cost_micro, self.told, self.finish_reason
        )


class ChatError(Exception):
    """A chat request that was not answered, after every retry that its policy allows.

    Attributes:
        kind: what to hold responsible.
        status: HTTP status, None when there was no answer.
        retry_after_s: what the provider asked to wait, None when it did not.
        attempts: requests sent, retries included.
        wait_s: spent waiting for admission and back-off.
        reply: the answer that came all the same, and cannot be used: it was paid for, and is booked.
        told: what the provider told of its limits per minute.
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
    """Whatever answers one conversation: a model behind its endpoint, or a double of it in a test."""

    async def __call__(self, messages: Sequence[Message]) -> ChatReply:
        """Return the reply to `messages`; raises `ChatError` when there is none."""
