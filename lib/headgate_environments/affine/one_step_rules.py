"""The greedy baseline's program for `affine:ded`: it follows the first one-step rule that fits the examples.

The baseline replies with this file's text, which runs in the sandbox: it imports the standard library only and contains
no fence of a code block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

Given = dict[str, Any]
Rule = Callable[[Given], Any]

OF_ONE: tuple[Callable[[Any], Any], ...] = (
    lambda x: x, len, sum, max, min, sorted, abs, round, int, float, str, bin, math.sqrt, math.exp, math.log,
    math.radians, math.degrees, math.ceil, math.floor, math.prod,
    lambda x: x[::-1], lambda x: x[0], lambda x: x[-1], lambda x: sorted(x, reverse=True), lambda x: len(set(x)),
    lambda x: x.upper(), lambda x: x.lower(), lambda x: x.strip(), lambda x: x.split(), " ".join,
    "".join, lambda x: x == x[::-1], lambda x: [len(part) for part in x], lambda x: list(map(int, x)),
    lambda x: x + 1, lambda x: x - 1, lambda x: 2 * x, lambda x: x / 2, lambda x: x // 2, lambda x: x * x, lambda x: -x,
    lambda x: x % 2, lambda x: x % 2 == 0, lambda x: not x, lambda x: x > 0, lambda x: x * (x + 1) // 2,
    lambda x: x * (x - 1) // 2, lambda x: sum(map(int, str(x))), lambda x: sum(x) / len(x), lambda x: max(x) - min(x),
    lambda x: sum(part * part for part in x), lambda x: math.factorial(x) if x < 200 else None,
)  # fmt: skip
"""Functions of one argument."""

OF_TWO: tuple[Callable[[Any, Any], Any], ...] = (
    max, min, math.gcd, math.lcm, math.hypot,
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a // b,
    lambda a, b: a % b, lambda a, b: a == b, lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a in b,
    lambda a, b: [a, b], lambda a, b: abs(a - b), lambda a, b: (a + b) / 2, lambda a, b: a * b / 2,
    lambda a, b: a * b / 100, lambda a, b: 2 * (a + b), lambda a, b: a * a + b * b, lambda a, b: sorted(a + b),
    lambda a, b: b.count(a), lambda a, b: b.index(a), lambda a, b: a[:b], lambda a, b: a[b:], lambda a, b: a[b],
    lambda a, b: [part for part in a if part in b], lambda a, b: [part for part in a if part not in b],
    lambda a, b: sum(x != y for x, y in zip(a, b, strict=True)),
    lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)),
    lambda a, b: a**b if abs(b) < 64 and abs(a) < 1e6 else None,
    lambda a, b: math.comb(a, b) if abs(a) < 500 else None,
)  # fmt: skip
"""Functions of two arguments."""


def fitting_rule(examples: Sequence[tuple[Given, Any]]) -> Rule:
    """Return the first rule that gives the wanted value of every example; for objects, one rule per member.

    If none does, return the rule that always gives the first example's value.
    """
    wanted = [value for _, value in examples]
    if all(isinstance(value, dict) and value.keys() == wanted[0].keys() for value in wanted):
        parts = {key: fitting_rule([(given, value[key]) for given, value in examples]) for key in wanted[0]}
        return lambda given: {key: part(given) for key, part in parts.items()}
    return next((rule for rule in _rules(list(examples[0][0])) if _fits(rule, examples)), lambda _: wanted[0])


def _rules(names: Sequence[str]) -> Iterator[Rule]:
    for name in names:
        for of_one in OF_ONE:
            yield lambda given, of_one=of_one, name=name: of_one(given[name])  # type: ignore[misc]
    for a, b in permutations(names, 2):
        for of_two in OF_TWO:
            yield lambda given, of_two=of_two, a=a, b=b: of_two(given[a], given[b])  # type: ignore[misc]


def _fits(rule: Rule, examples: Sequence[tuple[Given, Any]]) -> bool:
    try:
        return all(_is_same(rule(given), wanted) for given, wanted in examples)
    except Exception:  # noqa: BLE001 - most rules do not apply to most values
        return False


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and bool(one == other)
