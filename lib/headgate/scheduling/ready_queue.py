"""The ready queue: tasks that wait for a worker, fair between their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import attrgetter

from headgate.core import Task
from headgate.fairness import FairQueue


class FairReadyQueue(FairQueue[Task]):
    """Tasks that are ready to run, counted by environment and model. Pure; owned by the dispatcher."""

    def __init__(self, lane_of: Callable[[Task], str] = attrgetter("model")) -> None:
        super().__init__(id_of=attrgetter("task_id"), lane_of=lane_of)
        self.by_environment: Counter[str] = Counter()
        self.by_model: Counter[str] = Counter()

    def _entered(self, item: Task) -> None:
        self.by_environment[item.environment] += 1
        self.by_model[item.model] += 1

    def _left(self, item: Task) -> None:
        self.by_environment[item.environment] -= 1
        self.by_model[item.model] -= 1

    def validate(self) -> None:
        """Assert the invariants of the queue, and that the counts are right."""
        super().validate()
        assert sum(self.by_environment.values()) == sum(self.by_model.values()) == len(self)
