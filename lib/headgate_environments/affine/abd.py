"""`affine:abd`: given a program and what it printed, find an input for which it prints that (abduction)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.core import Message
from headgate.environments import SANDBOX, BaselineKind, Score, failed, passed
from headgate.environments.answers import last_tagged, normalised_output, without_thinking
from headgate_environments.affine.codeio import Case, Problem, ProgramEnvironment, draw, problem_at

GUESSES = 20
"""Number of inputs that the greedy baseline tries before it gives up; they cost about one run of the sandbox."""


@dataclass(frozen=True, slots=True)
class Abduction:
    """One task: a program, and a case whose output is shown and whose input is wanted."""

    problem: Problem
    case: Case

    @property
    def prompt(self) -> str:
        """The question to the model."""
        return (
            "Below is a Python program, and what it printed on one run. Find an input for which it prints exactly "
            "that.\n\n"
            f"Program:\n```python\n{self.problem.program}```\n\n"
            f"Output:\n```\n{self.case.stdout}\n```\n\n"
            "The program reads one JSON object from standard input. Reason as long as you like, then give the input "
            "between <INPUT> and </INPUT>, exactly as it should be typed and with nothing else between the tags. Only "
            "the last pair of tags is read. Any input that makes the program print this output is right."
        )


class AbductionEnvironment(ProgramEnvironment[Abduction]):
    """Programs whose input has to be inferred from their output."""

    def __init__(self) -> None:
        super().__init__(
            "affine:abd", "Find the input that makes a Python program print a given output", 0.006, _make, judged
        )

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a random input, with one of several random inputs that fits (`greedy`), or with the true input."""
        del conversation
        task = await self._tasks.get(index, seed)
        if kind == "solver":
            return _written(task.case)
        guesses = await draw(task.problem, rng.getrandbits(32), GUESSES if kind == "greedy" else 1)
        return _written(next((guess for guess in guesses if guess.stdout == task.case.stdout), guesses[0]))


def abd() -> AbductionEnvironment:
    """Return `affine:abd`.

    Raises:
        MissingExtraError: if the package with the programs is not installed.
    """
    return AbductionEnvironment()


async def judged(task: Abduction, reply: str) -> Score:
    """Return 1 if the program prints the shown output for the input in `reply`, and nothing to stderr; else 0."""
    answer = last_tagged(without_thinking(reply), "INPUT")
    if answer is None or not answer.strip():
        return failed("no input between <INPUT> and </INPUT>")
    run = await SANDBOX.run(task.problem.program, normalised_output(answer) + "\n")
    if not run.is_clean:
        return failed(f"the program does not take this input: {run.problem}")
    if normalised_output(run.stdout) != normalised_output(task.case.stdout):
        return failed("the program prints something else for this input")
    return passed("the program prints the output")


async def _make(index: int, seed: int) -> Abduction:
    problem = problem_at(index)
    (case,) = await draw(problem, seed, 1)
    return Abduction(problem, case)


def _written(case: Case) -> str:
    return f"<INPUT>\n{case.stdin}\n</INPUT>"
