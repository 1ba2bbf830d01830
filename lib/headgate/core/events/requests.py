"""What happens to one chat request: its waits, its attempts, and the limits that admit it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class RequestFinished(Event):
    """One attempt of a chat request ended; `outcome` is `success` or an error kind."""

    model: str
    outcome: str
    latency_s: float
    status: int | None
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class RequestDelayed(Event):
    """A chat request waits before its next attempt."""

    model: str
    outcome: str
    wait_s: float
    attempt: int
