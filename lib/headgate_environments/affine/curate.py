"""Choose the usable rows of the codeio data: `python -m headgate_environments.affine.curate > codeio_rows.txt`.

Takes some minutes. A row is usable when it

1. imports only harmless parts of the standard library and uses neither randomness, the time nor object identities;
2. draws 24 inputs and computes their results within 2 s of processor time, all short, at least 12 of them different;
3. prints the same when run as a separate program for each input, and under another seed of string hashes.

`--among FILE` keeps only the rows of an earlier list that give exactly the same cases here: run it under every Python
version for which the tasks must be equal. A line of the list has the row's number, a digest of the row, and a digest of
the cases drawn from it.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headgate.core import errors, seed_of
from headgate.environments import Limits, Sandbox
from headgate_environments.affine.codeio import Case, Problem, data_path, digest_of, draw, problem_of, read_rows

DRAWS: Final = 24
DISTINCT_RESULTS: Final = 12
"""Half of the draws: the output of a yes-or-no program could be guessed half of the time."""

FRESH_RUNS: Final = 3
LIMITS: Final = Limits(wall_s=10, cpu_s=2)
MAX_CODE_CHARS: Final = 6_000
MAX_CASE_CHARS: Final = 1_500
HARMLESS_MODULES: Final = frozenset(
    re.split(
        r"\s+",
        "abc array ast base64 binascii bisect calendar cmath collections copy csv dataclasses datetime decimal "
        "difflib enum fractions functools hashlib heapq io ipaddress itertools json math numbers operator pprint "
        "queue random re statistics string struct sys textwrap types typing unicodedata warnings",
    )
)
UNSTEADY_NAMES: Final = frozenset({"random", "id", "hash", "input", "open", "exec", "eval", "__import__", "globals"})
UNSTEADY_ATTRIBUTES: Final = frozenset(
    {"today", "now", "utcnow", "argv", "stdin", "modules", "version", "version_info"}
)

_STEADY = Sandbox()
_OTHER_HASHES = Sandbox(hash_seed=1)


def cases_digest(cases: Sequence[Case]) -> str:
    """Return 16 hex digits over `cases`."""
    text = "\n".join(f"{case.stdin}\n{case.stdout}" for case in cases)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def curation_cases(problem: Problem, sandbox: Sandbox) -> tuple[Case, ...]:
    """Return the cases that decide about a row; the third column of the list is their digest."""
    return await draw(problem, seed_of("codeio", problem.row), DRAWS, LIMITS, sandbox)


async def usable_line(problem: Problem) -> str | None:
    """Return the line of the list for `problem`, or None if it is not usable."""
    if len(problem.code) > MAX_CODE_CHARS or not _is_harmless(problem):
        return None
    try:
        cases = await curation_cases(problem, _STEADY)
        again = await curation_cases(problem, _OTHER_HASHES)
    except (errors.EnvironmentFailedError, ValueError, TypeError):
        return None  # it raised, ran too long, or printed something of its own between the cases
    if cases != again or not _is_telling(cases) or not await _runs_as_program(problem, cases[:FRESH_RUNS]):
        return None
    return f"{problem.row} {digest_of(problem)} {cases_digest(cases)}"


def _is_harmless(problem: Problem) -> bool:
    try:
        code, generator = ast.parse(problem.code), ast.parse(problem.generator)
    except SyntaxError:
        return False
    imported = {*_imported(code), *_imported(generator)}
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
    return imported <= HARMLESS_MODULES and not names & UNSTEADY_NAMES and not attributes & UNSTEADY_ATTRIBUTES


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                hidden = alias.name == "random" and alias.asname is not None
                yield "random under another name" if hidden else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            yield "names out of random" if module == "random" else module


def _is_telling(cases: Sequence[Case]) -> bool:
    longest = max(len(text) for case in cases for text in (case.stdin, case.stdout))
    return longest <= MAX_CASE_CHARS and len({case.stdout for case in cases}) >= DISTINCT_RESULTS


async def _runs_as_program(problem: Problem, cases: Sequence[Case]) -> bool:
    for case in cases:
        run = await _STEADY.run(problem.program, case.stdin, LIMITS)
        if not run.is_clean or run.stdout != case.stdout + "\n":
            return False
    return True


async def _usable_lines(problems: Sequence[Problem]) -> list[str]:
    slots = asyncio.Semaphore(4)

    async def line(problem: Problem) -> str | None:
        async with slots:
            return await usable_line(problem)

    return [found for found in await asyncio.gather(*map(line, problems)) if found is not None]


def main() -> None:
    """Print the list of usable rows."""
    parser = argparse.ArgumentParser(description="Choose the usable rows of the codeio data.")
    parser.add_argument("--data", type=Path, help="the data file; that of the installed package unless given")
    parser.add_argument("--among", type=Path, help="keep only lines of this list")
    options = parser.parse_args()
    problems = [problem_of(number, row) for number, row in enumerate(read_rows(options.data or data_path()))]
    earlier = options.among and options.among.read_text("ascii").splitlines()
    if earlier:
        rows = {int(line.split()[0]) for line in earlier if not line.startswith("#")}
        problems = [problem for problem in problems if problem.row in rows]
    lines = [line for line in asyncio.run(_usable_lines(problems)) if not earlier or line in earlier]
    sys.stdout.write(
        "# row, digest of the row, digest of its curation cases; written by headgate_environments.affine.curate\n"
    )
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
