"""What happens to an answer that a judge reads."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class JudgingStarted(Event):
    """A run with a judge began: so many samples are to be taken, so many of them were begun by an earlier run."""

    campaign: str
    run_id: str
    judge: str
    judgements: int
    samples: int
    reopened: int


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


@dataclass(frozen=True, slots=True)
class JudgingStopped(Event):
    """A run with a judge has ended; samples that were begun and not recorded are taken again by the next one."""

    campaign: str
    run_id: str
    samples: int
    stored: int
    spooled: int
    open_tasks: int
    stopped_by: str
