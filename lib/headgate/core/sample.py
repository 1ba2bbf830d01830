"""A sample: one outcome of one task, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from headgate.core.ids import TaskId, seed_of, task_id_of
from headgate.core.record import record

ONE_WORKER: Final[Mapping[str, int]] = MappingProxyType({"workers": 1})
"""The default resources of a task: one worker slot."""


@record
class Task:
    """Demand for one sample.

    Attributes:
        task_id: stable hash of campaign, model, environment, stage and sequence.
        model: key (`name@revision`) of the model.
        environment: registered name of the environment.
        sequence: how many tasks of this model and environment came before; never wraps.
        index: which of the environment's tasks this is: `sequence` modulo its data length.
        seed: random seed of the environment's task; the same for every model.
        stage: `sample`, or the stage of a sample that has several; `sample.2` repeats one that failed unscored.
        group: fairness key; the model's key unless the campaign groups otherwise.
        weight: share of the group under contention.
        priority: higher goes first among the tasks of one group.
        resources: scheduler resources that a lease on this task takes, name -> units.
        depends_on: tasks that must be done first.
        due_at: wall time at which the task fell due, seconds since the epoch.
        attempt: 1 for the first run; counts runs that ended without an accepted sample.
        request_seed: seed in its requests, if they have one; differs between repeats of the same task.
    """

    task_id: TaskId
    model: str
    environment: str
    sequence: int
    index: int
    seed: int
    group: str
    due_at: float
    stage: str = "sample"
    weight: float = 1.0
    priority: int = 0
    resources: Mapping[str, int] = field(default_factory=lambda: ONE_WORKER)
    depends_on: tuple[TaskId, ...] = ()
    attempt: int = 1
    campaign: str = "main"
    request_seed: int | None = None


def sample_task(
    *,
    campaign: str,
    model: str,
    environment: str,
    sequence: int,
    data_length: int,
    due_at: float,
    weight: float = 1.0,
    stage: str = "sample",
) -> Task:
    """Return the task that takes sample number `sequence` of a model in an environment of `data_length` tasks."""
    index = sequence % data_length
    return Task(
        task_id=task_id_of(model, environment, sequence, stage, campaign),
        model=model,
        environment=environment,
        sequence=sequence,
        index=index,
        seed=seed_of(environment, index),
        group=model,
        due_at=due_at,
        stage=stage,
        weight=weight,
        campaign=campaign,
    )


class ErrorKind(StrEnum):
    """Why a task ended without a regular score."""

    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILURE = "provider_failure"
    PROVIDER_TIMEOUT = "provider_timeout"
    AUTH = "auth"
    BAD_REQUEST = "bad_request"
    CONNECTION = "connection"
    BAD_ANSWER = "bad_answer"
    ENVIRONMENT = "environment"
    JUDGE = "judge"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    DAILY_BUDGET = "daily_budget"
    ENGINE = "engine"
    QUOTA = "quota"

    @property
    def is_service_error(self) -> bool:
        """True for errors that count towards a model's error pause (bad key, no credit, 5xx, refused)."""
        return self in _SERVICE_ERRORS

    @property
    def is_scored(self) -> bool:
        """True when the model itself is responsible for its 0: an unusable answer, or a sample's budget used up."""
        return self in _SCORED_ERRORS


_SERVICE_ERRORS = frozenset({ErrorKind.AUTH, ErrorKind.QUOTA, ErrorKind.PROVIDER_FAILURE, ErrorKind.CONNECTION})
_SCORED_ERRORS = frozenset({ErrorKind.BAD_ANSWER, ErrorKind.BUDGET})


@record
class Sample:
    """One row of the sample store.

    `score` is None exactly when `error_kind` names something that the model is not responsible for: a failure of a
    provider or an environment is recorded, never scored as 0.

    Attributes:
        score: in [0, 1], or None when nothing was scored.
        success: whether the environment calls the score a success.
        why: the environment's reason for the score, in one line.
        error_kind: class of the error, None when there was none.
        error: its message, secrets redacted.
        started_at: wall time at which the episode began, seconds since the epoch.
        finished_at: wall time at which it ended.
        latency_s: duration of the episode (monotonic).
        queue_wait_s: time from ready to started.
        request_wait_s: time spent waiting for admission of requests within the episode.
        prompt_tokens: sum over the episode's requests.
        completion_tokens: sum over the episode's requests.
        attempts: requests sent, retries included.
        trace_id: 32 hex digits, shared by all events of this sample.
        conversation: JSON of the messages exchanged, or empty.
        served_model: name of the model in the last answer, as the endpoint gave it; None where it gave none.
        system_fingerprint: fingerprint in that answer, likewise.
        cached_tokens: prompt tokens that the endpoint reports from its cache.
        reasoning_tokens: completion tokens that it reports as reasoning.
        cost_micro: cost in millionths of the currency, as billed or by its prices; None where unknown.
        lane: `batch` where its requests went in batches, else `now`.
        request_seed: seed in its requests; None where they had none.
        answer: the answer that its environment extracted from the last reply; None where it extracts none.
        judge_cost_micro: cost of its judge's replies, as `cost_micro`; None where unknown or without a judge.
        finish_reason: `length` where any answer was cut off at its token limit, else why the last one ended, as the
            endpoint reports it; None where it does not.
    """

    task_id: str
    campaign: str
    model: str
    environment: str
    sequence: int
    index: int
    seed: int
    stage: str
    score: float | None
    success: bool
    why: str
    error_kind: str | None
    error: str | None
    started_at: float
    finished_at: float
    latency_s: float
    queue_wait_s: float
    request_wait_s: float
    prompt_tokens: int
    completion_tokens: int
    turns: int
    attempts: int
    trace_id: str
    conversation: str = ""
    served_model: str | None = None
    system_fingerprint: str | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micro: int | None = None
    lane: str = "now"
    request_seed: int | None = None
    answer: str | None = None
    judge_cost_micro: int | None = None
    finish_reason: str | None = None

    @property
    def served_by(self) -> str:
        """The served model and its fingerprint, as far as the endpoint named them."""
        return " ".join(name for name in (self.served_model, self.system_fingerprint) if name)

    @property
    def is_scored(self) -> bool:
        """True when the sample counts towards rates, means and the 24 h total."""
        return self.score is not None
