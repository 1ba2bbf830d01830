"""A sample on its way through its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from headgate.core import Model, Task, TaskId, new_trace_id, task_id_of
from headgate.environments import EpisodeResult, Judgement
from headgate.run.dispatch import AGGREGATE, JUDGE, JUDGE_CALLS, LOCAL, LOCAL_LANE, ROLLOUT, WORKERS
from headgate.scheduling import RowGroup

_ROLLOUT_NEEDS: Final[Mapping[str, int]] = MappingProxyType({WORKERS: 1})
_JUDGE_NEEDS: Final[Mapping[str, int]] = MappingProxyType({JUDGE_CALLS: 1})
_LOCAL_NEEDS: Final[Mapping[str, int]] = MappingProxyType({LOCAL: 1})


@dataclass(slots=True)
class Row:
    """One sample on its way. Owned by the run; gone once it is recorded.

    Attributes:
        task: as the journal opened it; its sample has its identity.
        model: that answers.
        trace_id: on all events of the sample.
        ready_at: when its rollout was queued, in the run's time.
        latency_s: how long its rollout took.
        queue_wait_s: how long its rollout waited for a worker.
        result: of the rollout; without one the row was given back, and is taken again by the next run.
        judgements: by number, those that could be read.
        problems: by number, why there is none, or none yet.
        fault: what the environment did wrong with a judge's reply.
        judge_costs: millionths that each reply of the judge cost, None where that is not known.
        asked_again: numbers of judgements whose first reply could not be read.
        is_recorded: whether its sample was handed to the journal.
        is_withdrawn: whether it may not begin any more.
        stage_ids: its tasks, in the order of its stages; none where the journal's own task is the only one.
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
