"""What happens to an answer that a judge reads."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class AnswerJudged(Event):
    """A judge gave a verdict on the answer of a sample."""

    task_id: str
    model: str
    environment: str
    judge: str
    number: int
    value: float
    prompt_tokens: int
    completion_tokens: int
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class JudgementMissing(Event):
    """A judge gave no verdict that could be read, for good; the sample is made of the others, if there are any."""

    task_id: str
    model: str
    environment: str
    judge: str
    number: int
    reason: str
    trace_id: str = ""
