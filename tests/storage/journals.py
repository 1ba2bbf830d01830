"""What journal tests are about: openings, and the samples that close their tasks."""

from __future__ import annotations

from typing import Any

from headgate.core import Sample, Task
from headgate.storage import AlreadyTaken, Journal, Opening

NOW = 1_767_225_600.0
SMALL = "acme/small@main"
SAT = "affine:sat"


def opening(number: int = 0, *, model: str = SMALL, environment: str = SAT, sequence: int | None = None) -> Opening:
    """The request for the due time number `number` of a pair that is sampled once a minute."""
    return Opening(model, environment, NOW + 60.0 * number, 60.0, 10, sequence=sequence)


def opened(journal: Journal, *openings: Opening) -> list[Task]:
    """Open tasks of which none was taken before."""
    tasks = journal.open(openings)
    assert not [task for task in tasks if isinstance(task, AlreadyTaken)]
    return [task for task in tasks if isinstance(task, Task)]


def sample(task: Task, *, score: float | None = 1.0, finished_at: float = NOW) -> Sample:
    """The sample of a task."""
    return Sample(
        task_id=task.task_id,
        campaign=task.campaign,
        model=task.model,
        environment=task.environment,
        sequence=task.sequence,
        index=task.index,
        seed=task.seed,
        stage=task.stage,
        score=score,
        success=score is not None and score > 0.5,
        why="",
        error_kind=None if score is not None else "connection",
        error=None if score is not None else "refused",
        started_at=finished_at - 1.0,
        finished_at=finished_at,
        latency_s=1.0,
        queue_wait_s=0.0,
        request_wait_s=0.0,
        prompt_tokens=1,
        completion_tokens=1,
        turns=1,
        attempts=1,
        trace_id="0" * 32,
    )


def spool(journal: Journal, rows: int, *, first: int = 0, now: float = NOW) -> list[Sample]:
    """Open and accept `rows` samples."""
    samples = [sample(task) for task in opened(journal, *(opening(first + i) for i in range(rows)))]
    assert len(journal.accept(samples, now)) == rows
    return samples


def die(journal: Journal) -> None:
    """What is left of a journal whose process was killed: the system, or its lease's end, tells others of it."""
    database: Any = journal._db
    if journal.renew_every_s is None:
        database.close()
        return
    journal.renew()  # connected
    database._db.execute(
        "UPDATE holders SET seen_at = '-infinity', lease_s = -1e9 WHERE holder = %s", (journal.holder,)
    )
    database._db.close()
