"""From a task and how its episode ended to the sample that is stored."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from headgate.core import ErrorKind, Sample, Task
from headgate.environments import EpisodeResult, sum_of_known
from headgate.sampling import Health

MAX_ATTEMPTS = 5
"""A task whose process died this often is recorded as an environment error instead of being run again."""


def sample_of(
    task: Task,
    result: EpisodeResult,
    *,
    started_at: float,
    latency_s: float,
    queue_wait_s: float,
    trace_id: str,
    keep_conversation: bool,
    judge_costs: Sequence[int | None] = (),
) -> Sample:
    """Return the sample that an episode's result makes of its task."""
    conversation = ""
    if keep_conversation:
        conversation = orjson.dumps([(m.role, m.content) for m in result.messages]).decode()
    return Sample(
        task_id=task.task_id,
        campaign=task.campaign,
        model=task.model,
        environment=task.environment,
        sequence=task.sequence,
        index=task.index,
        seed=task.seed,
        stage=task.stage,
        score=result.score,
        success=result.success,
        why=result.why,
        error_kind=result.error_kind.value if result.error_kind else None,
        error=result.error,
        started_at=started_at,
        finished_at=started_at + latency_s,
        latency_s=latency_s,
        queue_wait_s=queue_wait_s,
        request_wait_s=result.request_wait_s,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        turns=result.turns,
        attempts=result.attempts,
        trace_id=trace_id,
        conversation=conversation,
        served_model=result.served_model or None,
        system_fingerprint=result.system_fingerprint or None,
        cached_tokens=result.cached_tokens,
        reasoning_tokens=result.reasoning_tokens,
        cost_micro=result.cost_micro,
        lane=result.lane,
        request_seed=task.request_seed,
        answer=result.answer,
        judge_cost_micro=sum_of_known(judge_costs),
    )


def poison_result(task: Task) -> EpisodeResult:
    """Return the result of a task that ended its process again and again."""
    return failed_result(f"the process that ran this task ended {task.attempt - 1} times before it had a result")


def failed_result(error: str) -> EpisodeResult:
    """Return the result of an episode that its environment ended before anything was known of it."""
    return EpisodeResult(
        score=None,
        success=False,
        why="",
        error_kind=ErrorKind.ENVIRONMENT,
        error=error,
        prompt_tokens=0,
        completion_tokens=0,
        turns=0,
        attempts=0,
        request_wait_s=0.0,
        messages=(),
    )


def health_of(error_kind: str | None) -> Health:
    """Return what an episode says about its model's service (a wrong answer is no service error)."""
    if error_kind is None or ErrorKind(error_kind).is_scored:
        return "answered"
    return "service_error" if ErrorKind(error_kind).is_service_error else "neutral"
