"""A sample as a job of the queue: what its worker receives, and what the worker submits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import orjson
from pydantic import BaseModel, ConfigDict, Field

from headgate.core import ErrorKind, Model, Sample, Secret, Task, redacted
from headgate.environments import ANSWER_CHARS, EpisodeResult
from headgate.jobqueue import JobSpec, JobState
from headgate.jobqueue.wire import JobOut
from headgate.run.job_samples import SCORE_FIELD, WHY_CHARS, JobSampleRules, sample_of_job, whole
from headgate.run.matrix import seeded
from headgate.run.rows import OF_TASK, Row

_CONVERSATION_BYTES: Final = 200_000
"""A longer conversation is left out: a result in the queue has 256 KiB at most."""


class AskedModel(BaseModel):
    """The endpoint that a worker asks, and how."""

    model_config = ConfigDict(frozen=True)

    name: str
    revision: str
    base_url: str = ""
    served_name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    api_key: str = ""
    tools: Literal["auto", "native", "text"] = "auto"

    @classmethod
    def of(cls, model: Model, *, sends_key: bool) -> Self:
        """Return how to ask `model`; without `sends_key`, all credentials are left out."""
        return cls(
            name=model.name,
            revision=model.revision,
            base_url=model.base_url if sends_key else _without_user(model.base_url),
            served_name=model.request_name,
            options=dict(model.options),
            api_key=model.api_key.reveal() if sends_key else "",
            tools=model.tools,
        )

    @property
    def model(self) -> Model:
        """The same as a roster entry."""
        given = self.model_dump(exclude={"options", "api_key"})
        return Model(**given, options=tuple(self.options.items()), api_key=Secret(self.api_key))


class SampleOrder(BaseModel):
    """The payload of a job that asks for a sample: task `index` of an environment, played by a model."""

    model_config = ConfigDict(frozen=True)

    campaign: str
    environment: str
    sequence: int
    index: int
    seed: int
    stage: str
    model: AskedModel


def job_of(task: Task, model: Model, executor: str, *, sends_key: bool) -> JobSpec:
    """Return the job of a sample: its id is the task's, its team the model's key, its task the environment."""
    pool = executor.partition(":")[2].replace("{model}", model.name)
    order = SampleOrder(
        campaign=task.campaign,
        environment=task.environment,
        sequence=task.sequence,
        index=task.index,
        seed=task.seed,
        stage=task.stage,
        model=AskedModel.of(seeded(model, task.request_seed), sends_key=sends_key),
    )
    return JobSpec(
        task.task_id, model.key, task.environment, str(task.index), pool, pool, payload=order.model_dump_json()
    )


def result_of(result: EpisodeResult) -> dict[str, Any]:
    """Return how an episode ended, in the form that a worker submits."""
    names = ("score", "success", "why", "answer", "error", "prompt_tokens", "completion_tokens", "turns", "attempts")
    counts = ("cached_tokens", "reasoning_tokens", "cost_micro", "finish_reason")
    told = {name: getattr(result, name) for name in (*names, *counts)}
    conversation = orjson.dumps([(message.role, message.content) for message in result.messages])
    if len(conversation) <= _CONVERSATION_BYTES:
        told["conversation"] = conversation.decode()
    return told | {"error_kind": result.error_kind and result.error_kind.value}


def sample_of_order(row: Row, job: JobOut, server: str, *, now: float, keep_conversation: bool) -> Sample:
    """Return the sample that an ended job makes of its row.

    A dead job, or a result without a usable score, makes a sample without a score; nothing is invented.

    Args:
        row: the row that was handed over.
        job: the job, done or dead.
        server: the job's policy server, or empty.
        now: upper bound of its end, whatever the queue's clock says.
        keep_conversation: whether to store the messages, if the worker submitted them.
    """
    task, told = row.task, job.result or {}
    rules = JobSampleRules(campaign=task.campaign, score_field="score" if "score" in told else SCORE_FIELD)
    sample = sample_of_job(job, rules, server)
    error = _text(told.get("error")) or sample.error or ""
    if job.state is JobState.DEAD:
        error = f"no outside worker has a result: {job.last_error}"
    kind = ErrorKind(said) if (said := told.get("error_kind")) in set(ErrorKind) else None
    if kind is None or kind.is_scored is not sample.is_scored:
        kind = None if sample.is_scored else ErrorKind.ENVIRONMENT
    finished_at = min(sample.finished_at, now)
    return replace(
        sample,
        **{name: getattr(task, name) for name in OF_TASK},
        why=redacted(_text(told.get("why")), limit_chars=WHY_CHARS) or sample.why,
        error_kind=kind and kind.value,
        error=kind and redacted(error or kind.value, limit_chars=WHY_CHARS),
        started_at=finished_at - sample.latency_s,
        finished_at=finished_at,
        queue_wait_s=row.queue_wait_s + sample.queue_wait_s,
        prompt_tokens=whole(told.get("prompt_tokens")),
        completion_tokens=whole(told.get("completion_tokens")),
        cached_tokens=min(whole(told.get("cached_tokens")), whole(told.get("prompt_tokens"))),
        reasoning_tokens=min(whole(told.get("reasoning_tokens")), whole(told.get("completion_tokens"))),
        cost_micro=None if told.get("cost_micro") is None else whole(told["cost_micro"]),
        finish_reason=_text(told.get("finish_reason"))[:WHY_CHARS] or None,
        turns=whole(told.get("turns")) or sample.turns,
        attempts=whole(told.get("attempts")) or job.epoch,
        trace_id=row.trace_id,
        answer=_text(told.get("answer"))[:ANSWER_CHARS] or None,
        conversation=_text(told.get("conversation")) if keep_conversation else "",
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
