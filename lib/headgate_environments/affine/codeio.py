"""The programs behind `affine:abd` and `affine:ded`: curated rows of the codeio data in the `reasoning-gym` wheel.

A row has a task description, a Python program with a function `main_solution`, and a generator of its inputs. Only the
data file of the wheel is read; the package is not imported (it is heavy), and its scorer is not used (it runs programs
in its own process). `curate.py` chose the rows, `codeio_rows.txt` lists them.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.metadata
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from headgate.core import errors
from headgate.environments import (
    SANDBOX,
    EnvironmentSpec,
    Limits,
    Sandbox,
    Score,
    SingleTurnEpisode,
    TaskCache,
    question,
)

DISTRIBUTION: Final = "reasoning-gym"
DATA_FILE: Final = "reasoning_gym/data/codeio.jsonl.gz"
ROWS_FILE: Final = Path(__file__).with_name("codeio_rows.txt")

LICENCE: Final = "Apache-2.0"
SOURCE: Final = "programs of reasoning-gym's codeio (Apache-2.0); rules published by AffineFoundation/affinetes"

DRAWS_PER_PROGRAM: Final = 10
"""Tasks per program, each with its own seed for inputs: the data length is the number of programs times this."""

FOOTER: Final = """

if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(main_solution(**json.load(sys.stdin)), allow_nan=False))
"""
"""Turns a function into a program: it reads a JSON object of named arguments and prints the result as JSON."""

# Generators run in a copy of the program's namespace, since some use its functions; the program never sees their names.
_DRIVER: Final = """
import json, sys
from random import Random
job = json.load(sys.stdin)
program = {"__name__": "program"}
exec(job["code"], program)
generator = dict(program, Random=Random)
exec(job["generator"], generator)
rng = Random(job["seed"])
for _ in range(job["draws"]):
    arguments = json.dumps(generator["generate_inputs"](rng), allow_nan=False)
    result = json.dumps(program["main_solution"](**json.loads(arguments)), allow_nan=False)
    print(json.dumps([arguments, result]))
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """One usable row.

    Attributes:
        row: number of the row in the data file, from 0.
        description: what the function computes, as text.
        interface: its arguments and its result, as text.
        code: defines `main_solution`.
        generator: defines `generate_inputs(rng)`.
    """

    row: int
    description: str
    interface: str
    code: str
    generator: str

    @property
    def program(self) -> str:
        """The code as a program between stdin and stdout."""
        return self.code.rstrip() + FOOTER


@dataclass(frozen=True, slots=True)
class Case:
    """One input of a program and what it prints for it, both JSON on one line."""

    stdin: str
    stdout: str


class ProgramTask(Protocol):
    """A task on a program."""

    @property
    def prompt(self) -> str:
        """The question to the model."""
        ...


T = TypeVar("T", bound=ProgramTask)


class ProgramEnvironment(Generic[T]):
    """Tasks about programs, made and scored in the sandbox. Stateless but for a cache of the latest tasks."""

    def __init__(
        self,
        name: str,
        summary: str,
        chance_score: float,
        make: Callable[[int, int], Awaitable[T]],
        judged: Callable[[T, str], Awaitable[Score]],
    ) -> None:
        """Describe the environment.

        Raises:
            MissingExtraError: if the package with the programs is not installed.
        """
        data_path()
        self.spec = EnvironmentSpec(
            name=name,
            summary=summary,
            daily_rate=100.0,
            data_length=problem_count() * DRAWS_PER_PROGRAM,
            licence=LICENCE,
            source=SOURCE,
            chance_score=chance_score,
            runs_programs=True,
        )
        self._tasks = TaskCache(make)
        self._judged = judged

    async def open(self, index: int, seed: int) -> SingleTurnEpisode:
        """Begin task `index`, whose cases are drawn with `seed`."""
        task = await self._tasks.get(index, seed)
        return SingleTurnEpisode(question(task.prompt), functools.partial(self._judged, task))


def problem_count() -> int:
    """Return the number of usable rows; reads only the small list."""
    return len(_listed_rows())


def problem_at(index: int) -> Problem:
    """Return the program of task `index`: the usable rows in order, starting over after the last.

    Raises:
        MissingExtraError: if the package with the data is not installed.
        EnvironmentFailedError: if its data differs from the curated data.
    """
    problems = _problems()
    return problems[index % len(problems)]


async def draw(
    problem: Problem, seed: int, draws: int, limits: Limits | None = None, sandbox: Sandbox = SANDBOX
) -> tuple[Case, ...]:
    """Return `draws` cases of `problem`, the same for the same seed; runs its generator and program in the sandbox.

    Raises:
        EnvironmentFailedError: if they fail, which curated rows do only on a machine that is out of resources.
    """
    job = {"code": problem.code, "generator": problem.generator, "seed": seed, "draws": draws}
    run = await sandbox.run(_DRIVER, json.dumps(job), limits)
    if not run.is_clean:
        raise errors.EnvironmentFailedError(f"the generator of row {problem.row} failed: {run.problem}")
    return tuple(Case(*json.loads(line)) for line in run.stdout.splitlines())


def data_path() -> Path:
    """Return the path of the installed data file.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise errors.MissingExtraError("environments of programs (affine:abd, affine:ded)", "environments") from error
    return Path(str(distribution.locate_file(DATA_FILE)))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return all rows of a data file; 3,002 in the curated version."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def problem_of(number: int, row: dict[str, Any]) -> Problem:
    """Return row `number` as a problem, usable or not."""
    return Problem(
        number, row["task_description"], row["input_output_spec"], row["code_sample"], row["input_generator"]
    )


def digest_of(problem: Problem) -> str:
    """Return 16 hex digits over all parts of a row that determine its tasks."""
    parts = (problem.description, problem.interface, problem.code, problem.generator)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _listed_rows() -> tuple[tuple[int, str], ...]:
    lines = (line.split() for line in ROWS_FILE.read_text("ascii").splitlines() if line[0] != "#")
    return tuple((int(number), digest) for number, digest, _ in lines)


@functools.cache
def _problems() -> tuple[Problem, ...]:
    rows = read_rows(data_path())
    return tuple(_curated(number, digest, rows) for number, digest in _listed_rows())


def _curated(number: int, digest: str, rows: list[dict[str, Any]]) -> Problem:
    problem = problem_of(number, rows[number]) if number < len(rows) else None
    if problem is None or digest_of(problem) != digest:
        version = importlib.metadata.version(DISTRIBUTION)
        raise errors.EnvironmentFailedError(
            f"row {number} of the data in {DISTRIBUTION} {version} is not the row that was curated",
            next_step=f"Install the version of {DISTRIBUTION} that Headgate pins, or run "
            "`python -m headgate_environments.affine.curate` for this one (its tasks will be other tasks).",
        )
    return problem
