"""A sample on its way through its stages, and what is stored about how its episode ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import orjson

from headgate.core import ErrorKind, Model, Sample, Task, TaskId, new_trace_id, task_id_of
from headgate.environments import EpisodeResult, Judgement, sum_of_known
from headgate.run.dispatch import AGGREGATE, JUDGE, JUDGE_CALLS, LOCAL, LOCAL_LANE, ROLLOUT, WORKERS
from headgate.sampling import Health
from headgate.scheduling import RowGroup

_ROLLOUT_NEEDS: Final[Mapping[str, int]] = MappingProxyType({WORKERS: 1})
_JUDGE_NEEDS: Final[Mapping[str, int]] = MappingProxyType({JUDGE_CALLS: 1})
_LOCAL_NEEDS: Final[Mapping[str, int]] = MappingProxyType({LOCAL: 1})


@dataclass(slots=True)
class Row:
    """One sample in progress. Owned by the run; dropped once it is recorded.

    Attributes:
        task: as the journal opened it; the sample gets its identity.
        model: the model that answers.
        trace_id: on all events of the sample.
        ready_at: when its rollout was queued, in the run's time.
        latency_s: how long its rollout took.
        queue_wait_s: how long its rollout waited for a worker.
        result: of the rollout; a row that ends without one was given back, and the next run samples it again.
        judgements: those that could be read, by number.
        problems: why a judgement is missing, or still missing, by number.
        fault: the environment's failure on a judge's reply.
        judge_costs: cost of each judge reply in millionths; None if unknown.
        asked_again: numbers of judgements whose first reply could not be read.
        is_recorded: whether its sample was handed to the journal.
        is_withdrawn: whether it may no longer begin.
        stage_ids: its tasks, in the order of its stages; empty if the journal's own task is the only one.
    """

    task: Task
    model: Model
    ready_at: float
    trace_id: str = field(default_factory=new_trace_id)
    started_at: float = 0.0
    latency_s: float = 0.0
    queue_wait_s: float = 0.0
    result: EpisodeResult | None = None
    judgements: dict[int, Judgement] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    fault: str | None = None
    judge_costs: list[int | None] = field(default_factory=list)
    asked_again: set[int] = field(default_factory=set)
    is_recorded: bool = False
    is_withdrawn: bool = False
    stage_ids: tuple[TaskId, ...] = ()

    def stages(self, judge: Model, judgements: int) -> RowGroup:
        """Return all stages of a judged row; the aggregate is the journal's own task."""
        rollout = replace(self.task, task_id=self._id(ROLLOUT), stage=ROLLOUT, resources=_ROLLOUT_NEEDS, depends_on=())
        judged = [
            replace(
                self.task,
                task_id=self._id(f"{JUDGE}.{number}"),
                stage=f"{JUDGE}.{number}",
                request_seed=None,
                model=judge.key,
                resources=_JUDGE_NEEDS,
                depends_on=(rollout.task_id,),
            )
            for number in range(1, judgements + 1)
        ]
        aggregate = replace(
            self.task,
            stage=AGGREGATE,
            model=LOCAL_LANE,
            resources=_LOCAL_NEEDS,
            depends_on=(rollout.task_id, *(task.task_id for task in judged)),
        )
        return RowGroup(self.task.task_id, (rollout, *judged, aggregate))

    def _id(self, stage: str) -> TaskId:
        task = self.task
        return task_id_of(task.model, task.environment, task.sequence, f"{task.stage}/{stage}", task.campaign)


MODEL_LEFT: Final = "its model left the roster"
"""Why a task that had not begun is withdrawn."""

OF_TASK: Final = tuple(name for name in Sample.__match_args__ if name in Task.__match_args__)
"""The fields that a sample copies from its task."""

_OF_RESULT: Final = tuple(name for name in Sample.__match_args__ if name in EpisodeResult.__match_args__)
_task_values, _result_values = attrgetter(*OF_TASK), attrgetter(*_OF_RESULT)

MAX_ATTEMPTS = 5
"""A task whose process died this many times is recorded as an environment error instead of running again."""


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
    """Return the sample made of a task and its episode's result."""
    conversation = ""
    if keep_conversation:
        conversation = orjson.dumps([(m.role, m.content) for m in result.messages]).decode()
    known = dict(zip(OF_TASK, _task_values(task), strict=True))
    known.update(zip(_OF_RESULT, _result_values(result), strict=True))
    for name in ("served_model", "system_fingerprint", "finish_reason"):
        known[name] = known[name] or None
    known["error_kind"] = result.error_kind.value if result.error_kind else None
    return Sample(
        **known,
        started_at=started_at,
        finished_at=started_at + latency_s,
        latency_s=latency_s,
        queue_wait_s=queue_wait_s,
        trace_id=trace_id,
        conversation=conversation,
        judge_cost_micro=sum_of_known(judge_costs),
    )


def poison_result(task: Task) -> EpisodeResult:
    """Return the result of a task whose process has died again and again."""
    return failed_result(f"the process that ran this task ended {task.attempt - 1} times before it had a result")


def failed_result(error: str) -> EpisodeResult:
    """Return the result of an episode that its environment ended before it had an outcome."""
    return EpisodeResult(score=None, success=False, why="", error_kind=ErrorKind.ENVIRONMENT, error=error)


def health_of(error_kind: str | None) -> Health:
    """Return what an episode says about its model's service (a wrong answer is not a service error)."""
    if error_kind is None or ErrorKind(error_kind).is_scored:
        return "answered"
    if error_kind == ErrorKind.QUOTA:
        return "exhausted"
    return "service_error" if ErrorKind(error_kind).is_service_error else "neutral"
