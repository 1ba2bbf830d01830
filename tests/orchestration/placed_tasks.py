"""Tasks that Ray workers run; they import this file and nothing of the tests."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from prefect import task

BODY: list[Any] = []
"""What the flow of a test does; a flow travels to Ray with all that it names, but a module only by its name."""


@task
def where(number: int, *before: Any) -> dict[str, Any]:
    """Tell the group and the API of this worker."""
    import ray

    group = ray.get_runtime_context().get_placement_group_id()
    return {"number": number, "group": group, "api": os.environ.get("PREFECT_API_URL"), "before": before}


@task
async def doubled(number: int) -> int:
    return 2 * number


@task(retries=1, retry_delay_seconds=0)
def held_up(marks: str, stays: int) -> int:
    """Leave a mark, and stay for ever in the first `stays` starts."""
    with Path(marks).open("a") as file:
        file.write(f"{os.getpid()}\n")
    started = len(Path(marks).read_text().split())
    while started <= stays:
        time.sleep(0.01)
    return started


@task(retries=2, retry_delay_seconds=0)
def killed(marks: str) -> None:
    """Leave a mark and kill its own worker."""
    with Path(marks).open("a") as file:
        file.write("x")
    os._exit(1)


@task
def failing() -> None:
    raise ValueError("it is Monday")
