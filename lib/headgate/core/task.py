"""A task: one sample of one model in one environment, or one stage of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from headgate.core.ids import TaskId, seed_of, task_id_of

ONE_WORKER: Final[Mapping[str, int]] = MappingProxyType({"workers": 1})
"""What a task needs unless its environment says otherwise: one worker slot."""


@dataclass(frozen=True, slots=True)
class Task:
    """Demand for one sample.

    Attributes:
        task_id: stable hash of campaign, model, environment, stage and sequence.
        model: key (`name@revision`) of the model.
        environment: registered name of the environment.
        sequence: how many tasks of this model and environment came before; never wraps.
        index: which of the environment's tasks this is: `sequence` modulo its data length.
        seed: random seed of the environment's task; the same for every model.
        stage: `sample`, or the stage of a sample that has several; `sample.2` takes one again that failed unscored.
        group: fairness key; the model's key unless the campaign groups otherwise.
        weight: share of the group under contention.
        priority: among the tasks of one group, higher goes first.
        resources: scheduler resources that a lease on this task takes, name -> units.
        depends_on: tasks that must be done before.
        due_at: wall time at which the task fell due, seconds since the epoch.
        attempt: 1 for the first run; counts runs that ended without an accepted sample.
        campaign: name of the campaign.
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
