"""Parameters of a scenario, changed from the command line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from headgate.core import did_you_mean
from headgate.core.errors import InvalidInputError

P = TypeVar("P")


def changed(parameters: P, changes: Sequence[str]) -> P:
    """Return the parameters with `changes` made, each `name=value`; a list's values are separated by commas.

    Raises:
        InvalidInputError: if a change has another form, or names no parameter, or its value does not fit.
    """
    known: dict[str, Any] = {f.name: getattr(parameters, f.name) for f in dataclasses.fields(parameters)}  # type: ignore[arg-type]
    for change in changes:
        name, equals, text = change.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidInputError(f"--set takes name=value (got {change!r})")
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInputError(
                f"the benchmark has no parameter {name!r}{hint}", next_step=f"It has: {', '.join(known)}."
            )
        known[name] = tuple(text.split(",")) if isinstance(known[name], tuple) else text.strip()
    try:
        made = TypeAdapter(type(parameters)).validate_python(known)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InvalidInputError(f"parameter {place}: {problem['msg']} (got {problem['input']!r:.80})") from None
    for change in changes:
        name = change.partition("=")[0].strip()
        _check(name, getattr(made, name))
    return made


def _check(name: str, value: object) -> None:
    """Refuse numbers that no scenario can be run with; bars may be any, so that one can be missed on purpose.

    Raises:
        InvalidInputError: if one is not finite, or says how much of something and is not above 0.
    """
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        is_bar, is_share = name.startswith("bar"), name.endswith("_share")
        if math.isfinite(number) and (is_bar or number > 0 or (is_share and number == 0)):
            continue
        rule = "finite" if is_bar else "finite and >= 0" if is_share else "finite and > 0"
        raise InvalidInputError(f"parameter {name} must be {rule} (got {number!r})")
