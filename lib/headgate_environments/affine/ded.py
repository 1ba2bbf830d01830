"""`affine:ded`: given a description and examples, write the program that passes hidden cases (deduction)."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.core import Message, errors
from headgate.environments import SANDBOX, BaselineKind, Score, failed, passed
from headgate.environments.answers import last_python_fence, normalised_output, without_thinking
from headgate_environments.affine import one_step_rules
from headgate_environments.affine.codeio import Case, Problem, ProgramEnvironment, draw, problem_at

EXAMPLES: Final = 2
HIDDEN_CASES: Final = 5
DRAWS: Final = 24
"""The rows are chosen so that 24 draws have many different results; see `_make`."""

NUMBER_TOLERANCE: Final = 1e-9
"""Relative. Summing in another order is not a mistake."""


@dataclass(frozen=True, slots=True)
class Deduction:
    """One task: a problem described in words, with shown and hidden cases.

    Invariant: the hidden cases have at least two different outputs, so that no constant passes them.
    """

    problem: Problem
    examples: tuple[Case, ...]
    hidden: tuple[Case, ...]

    @property
    def prompt(self) -> str:
        """The question to the model."""
        shown = "\n\n".join(f"Input:\n{case.stdin}\nOutput:\n{case.stdout}" for case in self.examples)
        return (
            f"Write a Python program for this task.\n\n{self.problem.description.strip()}\n\n"
            f"{self.problem.interface.strip()}\n\n"
            "The program reads one JSON object from standard input, whose members are the arguments named above, and "
            "prints the returned value as JSON on one line, nothing else. It may use the standard library of Python "
            "only, and must write nothing to standard error.\n\n"
            f"Examples:\n\n{shown}\n\n"
            "Reason as long as you like, then give the whole program in one fenced block that begins with ```python. "
            "Only the last such block is read. It is run on cases that you do not see."
        )


class DeductionEnvironment(ProgramEnvironment[Deduction]):
    """Programs to write from their description."""

    def __init__(self) -> None:
        super().__init__(
            "affine:ded", "Write a Python program from its description and two examples", 0.0, _make, judged
        )

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a program that prints an example's output, that fits a one-step rule (`greedy`), or the reference.

        The first scores 0 by design: no constant passes the hidden cases.
        """
        del conversation
        task = await self._tasks.get(index, seed)
        if kind == "solver":
            return _fenced(task.problem.program)
        if kind == "greedy":
            return _fenced(_one_step_program(task.examples))
        return _fenced(f"print({rng.choice(task.examples).stdout!r})\n")


def ded() -> DeductionEnvironment:
    """Return `affine:ded`.

    Raises:
        MissingExtraError: if the package with the programs is not installed.
    """
    return DeductionEnvironment()


async def judged(task: Deduction, reply: str) -> Score:
    """Return 1 if the program in `reply` passes every hidden case; stop at the first that fails and return 0."""
    program = last_python_fence(without_thinking(reply))
    if program is None or not program.strip():
        return failed("no program in a ```python block")
    for number, case in enumerate(task.hidden, start=1):
        run = await SANDBOX.run(program, case.stdin + "\n")
        if not run.is_clean:
            return failed(f"hidden case {number} of {len(task.hidden)}: {run.problem or 'it wrote to stderr'}")
        if not same_output(run.stdout, case.stdout):
            return failed(f"hidden case {number} of {len(task.hidden)}: another output")
    return passed(f"all {len(task.hidden)} hidden cases pass")


def same_output(printed: str, expected: str) -> bool:
    """Return whether both are the same text up to surrounding blanks, or the same JSON value.

    The order of members does not matter; numbers are equal within `NUMBER_TOLERANCE`, but 1 never equals `true`.
    """
    if normalised_output(printed) == normalised_output(expected):
        return True
    try:
        return _same_value(json.loads(printed), json.loads(expected))
    except (ValueError, RecursionError, OverflowError):
        return False


def _same_value(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return one == other or math.isclose(one, other, rel_tol=NUMBER_TOLERANCE)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_value(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same_value, one, other))
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _make(index: int, seed: int) -> Deduction:
    problem = problem_at(index)
    cases = await draw(problem, seed, DRAWS)
    different: dict[str, Case] = {}
    for case in cases:
        different.setdefault(case.stdout, case)
    chosen = tuple(different.values())[: EXAMPLES + HIDDEN_CASES]
    examples, hidden = chosen[:EXAMPLES], chosen[EXAMPLES:]
    if len(hidden) < 2:
        raise errors.EnvironmentFailedError(
            f"row {problem.row} has {len(different)} different results in {DRAWS} draws, at least {EXAMPLES + 2} needed"
        )
    return Deduction(problem, examples, hidden)


def _one_step_program(examples: Sequence[Case]) -> str:
    """Return a program that finds a one-step rule for the examples and follows it."""
    pairs = f"[{', '.join(f'[{case.stdin}, {case.stdout}]' for case in examples)}]"
    return (
        f"{Path(one_step_rules.__file__).read_text(encoding='utf-8')}\n\nimport json\n\n"
        f"print(json.dumps(fitting_rule(json.loads({pairs!r}))(json.loads(input()))))\n"
    )


def _fenced(program: str) -> str:
    return f"```python\n{program}\n```"
