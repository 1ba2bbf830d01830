"""How long a task that could not be done may be tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import Task, TaskId
from headgate.scheduling import RetryRules
from headgate.scheduling.retries import Retries, RetryLaterError

TASK = Task(TaskId("t-1"), "a@main", "affine:sat", 0, 0, 0, stage="sample", group="a@main", due_at=0.0)


def test_a_task_that_fails_for_too_long_is_not_tried_again() -> None:
    retries = Retries(RetryRules(for_s=100.0))
    assert retries.put_off(TASK, RetryLaterError("429", 5.0), 0.0) == 5.0
    assert retries.put_off(TASK, RetryLaterError("429", 5.0), 100.0) is None


def test_a_task_that_waits_without_a_failure_waits_for_as_long_as_it_takes() -> None:
    retries = Retries(RetryRules(for_s=100.0, max_attempts=2))
    again = replace(TASK, attempt=9)
    for hours in range(0, 100_000, 10_000):
        assert retries.put_off(again, RetryLaterError("its day is used up", 5.0, is_failure=False), float(hours)) == 5.0


@pytest.mark.parametrize(("is_failure", "wait_s"), [(True, None), (False, 5.0)])
def test_a_wait_without_a_failure_forgets_the_failures_before_it(is_failure: bool, wait_s: float | None) -> None:
    retries = Retries(RetryRules(for_s=100.0))
    retries.put_off(TASK, RetryLaterError("429", 5.0), 0.0)
    retries.put_off(TASK, RetryLaterError("its day is used up", 5.0, is_failure=is_failure), 50.0)
    assert retries.put_off(TASK, RetryLaterError("429", 5.0), 101.0) == wait_s


def test_tasks_that_are_put_off_can_be_taken_out() -> None:
    retries = Retries(RetryRules())
    timed, held, other = (replace(TASK, task_id=TaskId(f"t-{name}")) for name in ("timed", "held", "other"))
    retries.put_off(timed, RetryLaterError("429", 5.0), 0.0)
    retries.put_off(other, RetryLaterError("429", 9.0), 0.0)
    retries.put_off(held, RetryLaterError("in a batch", is_held=lambda: True), 0.0)
    taken = retries.take(lambda task: task.task_id != "t-other")
    assert {task.task_id for task in taken} == {"t-timed", "t-held"}
    assert (len(retries), retries.next_at()) == (1, 9.0)
    assert [task.task_id for task in retries.due(10.0)] == ["t-other"]
