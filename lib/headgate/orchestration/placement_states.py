"""The states of a placed task run that only its flow knows: waiting for a place, preempted, cancelled, crashed."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task
from prefect.utilities.asyncutils import run_coro_as_sync
from prefect.utilities.engine import emit_task_run_state_change_event


class TaskRunStates:
    """One task run as Prefect sees it. Owned by the run's thread.

    Each attempt begins from the same task run with a run count of zero: an attempt that was preempted is not counted
    among the task's retries.
    """

    def __init__(self, task: Task[Any, Any], task_run_id: UUID, **arguments: Any) -> None:
        """Make the task run and tell Prefect that it is pending; `arguments` are those of `create_local_run`."""
        made: Any = run_coro_as_sync(task.create_local_run(id=task_run_id, **arguments))
        self._task_run: TaskRun = made
        if isinstance(task.task_run_name, str):  # as the engine names it once it runs, or says what is wrong with it
            with suppress(KeyError, IndexError, AttributeError):
                made.name = task.task_run_name.format(**(arguments.get("parameters") or {}))
        self._state: State[Any] = made.state
        emit_task_run_state_change_event(self._task_run, None, self._state)

    @property
    def name(self) -> str:
        """The task run's name."""
        return self._task_run.name

    def for_attempt(self) -> TaskRun:
        """Return the task run as the engine of an attempt takes it."""
        return deepcopy(self._task_run)

    def tell(self, state: State[Any]) -> State[Any]:
        """Tell Prefect that the task run is now in `state`, and return it."""
        before = self._state
        if state.timestamp <= before.timestamp:
            state.timestamp = before.timestamp + timedelta(microseconds=1)
        state.state_details.task_run_id = self._task_run.id
        state.state_details.flow_run_id = self._task_run.flow_run_id
        self._state = state
        self._task_run.state = state
        self._task_run.state_id, self._task_run.state_type, self._task_run.state_name = state.id, state.type, state.name
        emit_task_run_state_change_event(self._task_run, before, state)
        return state
