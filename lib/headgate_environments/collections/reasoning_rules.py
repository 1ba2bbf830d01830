"""Which generators of reasoning-gym are used, what answers their scorers may see, and what chance scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

CHANCE: Final[Mapping[str, float]] = {
    "acre": 0.033,
    "basic_arithmetic": 0.017,
    "chain_sum": 0.017,
    "circuit_logic": 0.05,
    "color_cube_rotation": 0.05,
    "course_schedule": 0.033,
    "game_of_life_halting": 0.017,
    "largest_island": 0.05,
    "lcm": 0.017,
    "maze": 0.017,
    "number_format": 0.017,
    "number_sequence": 0.15,
    "prime_factorization": 0.017,
    "self_reference": 0.017,
    "string_manipulation": 0.017,
}
"""Mean over tasks 0 to 59; 0 in all others."""

Entry = Mapping[str, Any]
Gate = Callable[[str, Entry], bool]

_HASHED: Final = "its tasks change with PYTHONHASHSEED"

LEFT_OUT: Final[Mapping[str, str]] = {
    "codeio": "its scorer executes what the model wrote; affine:abd and affine:ded ask its programs in a sandbox",
    "composite": "it is a mixture of the others",
    "intermediate_integration": "its scorer simplifies whatever formula the model wrote, in time without bound",
    "isomorphic_strings": _HASHED,
    "knight_swap": _HASHED,
    "list_functions": _HASHED,
    "polynomial_multiplication": _HASHED,
    "propositional_logic": "a premise repeated is a full score",
    "ransom_note": _HASHED,
    "time_intervals": "its tasks change with the date",
    "word_ladder": _HASHED,
}

MADE_ONE_BY_ONE: Final = frozenset({"acre"})
"""These draw all their tasks before the first: each task is the first one of a data set of its own seed."""

NO_SOLUTION: Final = frozenset({"boxnet", "rush_hour"})
"""The package tells no answer to these."""

_EXPONENT: Final = re.compile(r"(?<!\w)\d+(?:\.\d*)?[eE][+-]?\d{3,}", re.ASCII)
"""Numbers as long as 1e999999 cost a scorer minutes to write out."""

_ARITHMETIC: Final = re.compile(r"(?:\d{1,6}|[+\-/() ]|\*(?!\*))*")
_POLYNOMIAL: Final = re.compile(r"(?:\d{1,6}|\*\*[ ]?\d{1,2}(?!\d)|[A-Za-z]|[+\-/(). ]|\*(?!\*))*")
_POWER_OF_BRACKETS: Final = re.compile(r"\) *\*\*|\*\* *\d+ *\*\*|[A-Za-z]{2}")
_PROBABILITY: Final = re.compile(r"[0-9]{1,20}(?:[./][0-9]{1,20})?")
_FORMULA_CHARS: Final = 400


def _only(pattern: str) -> Gate:
    allowed = re.compile(pattern, re.ASCII)
    return lambda answer, _: allowed.fullmatch(answer) is not None


def _arithmetic(answer: str, _: Entry) -> bool:
    return len(answer) <= _FORMULA_CHARS and _ARITHMETIC.fullmatch(answer) is not None


def _four_given_numbers(answer: str, entry: Entry) -> bool:
    """The package's scorer takes any four numbers."""
    used = sorted(map(int, re.findall(r"[0-9]+", answer))) if _arithmetic(answer, entry) else []
    return used == sorted(map(int, entry["metadata"]["numbers"]))


def _antiderivative(answer: str, _: Entry) -> bool:
    """A sum of powers; no functions, nor powers of powers, which would take their time to work out."""
    is_short = len(answer) <= _FORMULA_CHARS
    return is_short and _POLYNOMIAL.fullmatch(answer) is not None and not _POWER_OF_BRACKETS.search(answer)


def _probability(answer: str, entry: Entry) -> bool:
    """The package's scorer gives full marks to a prefix of the number, such as 0."""
    try:
        return _PROBABILITY.fullmatch(answer) is not None and abs(Fraction(answer) - Fraction(entry["answer"])) <= 1e-4
    except ZeroDivisionError:
        return False


_GATES: Final[Mapping[str, Gate]] = {
    # These scorers evaluate the answer as Python; a full score needs no more than these characters.
    "binary_matrix": _only(r"[0-9\s]*"),
    "countdown": _arithmetic,
    "n_queens": _only(r"[Q_\s]*"),
    "puzzle24": _four_given_numbers,
    "simple_integration": _antiderivative,
    "spiral_matrix": _only(r"[-0-9\s]*"),
    "string_insertion": _only(r"[A-E]*"),
    # These give full marks to wrong answers.
    "coin_flip": _probability,
    "complex_arithmetic": lambda answer, _: "nan" not in answer.lower(),
    "game_of_life_halting": lambda answer, entry: answer == str(entry["answer"]),
}


def may_be_scored(dataset: str, answer: str, entry: Entry) -> bool:
    """Return whether the package's scorer may see `answer`; where not, it is wrong."""
    if answer == solution(dataset, entry):
        return True
    gate = _GATES.get(dataset)
    return bool(answer) and not _EXPONENT.search(answer) and (gate is None or gate(answer, entry))


def solution(dataset: str, entry: Entry) -> str | None:
    """Return the package's own answer to a task, None where it tells none."""
    if dataset in NO_SOLUTION:
        return None
    if dataset == "graph_color":
        coloring = entry["metadata"]["possible_answer"]
        return "{" + ", ".join(f'"{vertex}": {color}' for vertex, color in coloring.items()) + "}"
    if dataset == "rubiks_cube":
        return str(entry["metadata"]["example_correct_answer"])
    return str(entry["answer"])
