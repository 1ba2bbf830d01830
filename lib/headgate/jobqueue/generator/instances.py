"""The test instances of each task: a folder per task, a file per instance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.problems import Problems, part_problem
from headgate.jobqueue.generator.submissions import json_files

INSTANCE_SUFFIX: Final = "_template-tro_state.json"

_NUMBER: Final = re.compile(r"_([0-9]{1,18})$", re.ASCII)
_NEXT_STEP: Final = "Name the folder of test instances with --test-instances-dir."


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """One test instance of a task; in their order 2 comes before 10.

    Attributes:
        number: which one; results are named after it.
        file: name of its file.
    """

    number: int
    file: str


@dataclass(frozen=True, slots=True)
class Instances:
    """The test instances that there are.

    Attributes:
        by_task: task -> its instances, in order.
        ignored: files (`task/name`) that are not named like an instance.
    """

    by_task: Mapping[str, tuple[Instance, ...]]
    ignored: tuple[str, ...] = ()


def read_instances(folder: Path) -> Instances:
    """Return the test instances in a folder's sub-folders (`<task>/*_template-tro_state.json`).

    Raises:
        InvalidJobError: if there is none, one has no number, or two of a task have the same.
    """
    try:
        tasks = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(
            f"folder of test instances {folder} cannot be read: {said}", next_step=_NEXT_STEP
        ) from None
    problems = Problems(str(folder))
    by_task: dict[str, tuple[Instance, ...]] = {}
    ignored: list[str] = []
    for task in tasks:
        names = [path.name for path in json_files(task, f"task {task.name!r}", _NEXT_STEP)]
        ignored += [f"{task.name}/{name}" for name in names if not name.endswith(INSTANCE_SUFFIX)]
        found = instances_of(task.name, (name for name in names if name.endswith(INSTANCE_SUFFIX)), problems)
        if found:
            by_task[task.name] = found
    problems.refuse_if_any()
    if not by_task:
        raise InvalidJobError(f"{folder}: holds no file <task>/*{INSTANCE_SUFFIX}", next_step=_NEXT_STEP)
    return Instances(by_task, tuple(ignored))


def instances_of(task: str, files: Iterable[str], problems: Problems) -> tuple[Instance, ...]:
    """Return a task's instances in order; noting names that break a rule."""
    if (problem := part_problem(task)) is not None:
        problems.add(repr(task), f"a task's name: {problem}")
        return ()
    found: dict[int, Instance] = {}
    for file in sorted(files):
        number = instance_number(file)
        if number is None:
            problems.add(f"{task}/{file}", f"the part before {INSTANCE_SUFFIX} must end with _ and a whole number")
        elif (other := found.setdefault(number, Instance(number, file))).file != file:
            problems.add(
                f"{task}/{file}", f"has number {number}, which {other.file} has too; results are named after it"
            )
    return tuple(sorted(found.values()))


def instance_number(file: str) -> int | None:
    """Return the number in the name of an instance's file, None when there is none."""
    matched = _NUMBER.search(file.removesuffix(INSTANCE_SUFFIX))
    return None if matched is None else int(matched[1])
