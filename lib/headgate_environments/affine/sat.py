"""`affine:sat` and `affine:sat-hard`: find an assignment that satisfies a formula with a planted solution."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, Score, SingleTurnEpisode, failed, passed, question

CLAUSES_PER_VARIABLE: Final = 4.26
"""The ratio at which random 3-SAT turns from satisfiable to unsatisfiable; the published rule uses it for every k."""

_ASSIGNMENT: Final = re.compile(r"x(\d{1,9})=(True|False|1|0)")
_LITERAL: Final = re.compile(r"(¬?)x(\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class Formula:
    """A conjunction of clauses over `x1..xN`; literal `-3` stands for "not x3".

    Invariant: `planted` satisfies every clause.
    """

    clauses: tuple[tuple[int, ...], ...]
    planted: dict[int, bool]

    def first_unsatisfied(self, assignment: dict[int, bool]) -> int | None:
        """Return the number (from 1) of the first false clause, or None; unassigned variables satisfy no clause."""
        for number, clause in enumerate(self.clauses, start=1):
            if not any(assignment.get(abs(literal)) is (literal > 0) for literal in clause):
                return number
        return None

    def __str__(self) -> str:
        return " ∧ ".join(f"({' ∨ '.join(map(_shown, clause))})" for clause in self.clauses)


def planted_formula(index: int, variables: int, literals: int) -> Formula:
    """Return the formula of task `index`.

    Follows the published generator draw by draw (affinetes, `environments/affine/sat.py`): each clause has `literals`
    variables; one has its sign in the planted solution, the others have random signs.
    """
    rng = random.Random(index)
    names = range(1, variables + 1)
    planted = {name: rng.choice([True, False]) for name in names}

    def clause() -> tuple[int, ...]:
        chosen = rng.sample(names, literals)
        kept = rng.choice(chosen)
        signs = (planted[name] if name == kept else rng.choice([True, False]) for name in chosen)
        return tuple(name if sign else -name for name, sign in zip(chosen, signs, strict=True))

    return Formula(tuple(clause() for _ in range(int(CLAUSES_PER_VARIABLE * variables))), planted)


def read_assignment(reply: str) -> dict[int, bool]:
    """Return the assignment in `reply`: each `x<number>=True|False|1|0` without blanks; the last of a variable wins."""
    return {int(name): value in ("True", "1") for name, value in _ASSIGNMENT.findall(reply)}


class Satisfiability:
    """k-SAT with a planted solution. Stateless; tasks depend on the index alone, as upstream's do on the task id."""

    def __init__(self, spec: EnvironmentSpec, variables: int, literals: int) -> None:
        self.spec = spec
        self._variables = variables
        self._literals = literals

    async def open(self, index: int, seed: int) -> SingleTurnEpisode:
        """Begin task `index`; `seed` is not used, so that index and upstream's task id name the same formula."""
        del seed
        formula = self._formula(index)

        async def judge(reply: str) -> Score:
            return _judged(formula, read_assignment(reply))

        return SingleTurnEpisode(question(self._prompt(formula)), judge)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with coin flips (`random`), each variable's more frequent sign (`greedy`) or the planted solution."""
        del seed
        if kind == "solver":
            return _written(self._formula(index).planted)
        if kind == "greedy":
            return _written(_majority(conversation[0].content, self._variables))
        return _written({name: rng.random() < 0.5 for name in range(1, self._variables + 1)})

    def _formula(self, index: int) -> Formula:
        return planted_formula(index, self._variables, self._literals)

    def _prompt(self, formula: Formula) -> str:
        return (
            f"Find a satisfying assignment for the following {self._literals}-SAT formula "
            f"over variables x1..x{self._variables}:\n{formula}\n"
            "Provide your answer as comma-separated assignments like `x1=True, x2=False, ...`, "
            "or respond `UNSAT` if it has no solution."
        )


def sat() -> Satisfiability:
    """Return `affine:sat`: the published shape, which random answers mostly pass."""
    return Satisfiability(
        _spec("affine:sat", "Satisfy a 10-SAT formula of 63 clauses (the published, lenient shape)", chance=0.945),
        variables=15,
        literals=10,
    )


def sat_hard() -> Satisfiability:
    """Return `affine:sat-hard`: the same form at k=3, which random answers do not pass."""
    return Satisfiability(
        _spec("affine:sat-hard", "Satisfy a 3-SAT formula of 85 clauses (chance does not pass)", chance=0.0003),
        variables=20,
        literals=3,
    )


def _spec(name: str, summary: str, chance: float) -> EnvironmentSpec:
    return EnvironmentSpec(
        name=name,
        summary=summary,
        daily_rate=100.0,
        data_length=1_000_000,
        licence="Apache-2.0",
        source="rule published by AffineFoundation/affinetes; tasks are generated from the index",
        chance_score=chance,
        tasks_are_drawn=True,
    )


def _judged(formula: Formula, assignment: dict[int, bool]) -> Score:
    if not assignment:
        return failed("no assignment like x1=True in the answer")
    unsatisfied = formula.first_unsatisfied(assignment)
    if unsatisfied is None:
        return passed(f"all {len(formula.clauses)} clauses hold")
    return failed(f"clause {unsatisfied} of {len(formula.clauses)} is not satisfied")


def _majority(text: str, variables: int) -> dict[int, bool]:
    votes: Counter[int] = Counter()
    formula = text.partition("\n")[2].partition("\n")[0]
    for negated, name in _LITERAL.findall(formula):
        votes[int(name)] += -1 if negated else 1
    return {name: votes[name] > 0 for name in range(1, variables + 1)}


def _written(assignment: dict[int, bool]) -> str:
    return ", ".join(f"x{name}={value}" for name, value in sorted(assignment.items()))


def _shown(literal: int) -> str:
    return f"{'' if literal > 0 else '¬'}x{abs(literal)}"
