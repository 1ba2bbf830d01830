"""What is wrong with a file: every problem with its field, value and rule, told at once; and the names in files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from slugify import slugify

from headgate.core import checked_text, redacted
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.names import NAME_CHARS, checked_id

_SHOWN_PROBLEMS: Final = 20
_SHOWN_CHARS: Final = 80
_RULES: Final = {
    "missing": "is missing",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be a list",
    "string_too_short": f"must have 1 to {NAME_CHARS} characters",
    "string_too_long": f"must have 1 to {NAME_CHARS} characters",
}
_NEXT_STEP: Final = "Correct the file and run the command again; nothing was written."

Checked = TypeVar("Checked", bound=BaseModel)


@dataclass(slots=True)
class Problems:
    """What is wrong with one file or folder, in the order in which it was found.

    Attributes:
        source: the file or folder.
        lines: the problems.
    """

    source: str
    lines: list[str] = field(default_factory=list)

    def add(self, place: str, rule: str, *got: object) -> None:
        """Note that what stands at `place` breaks `rule`; `got` is its value, told once."""
        told = "" if "(got " in rule else "".join(f" (got {shown(value)})" for value in got)
        self.lines.append(f"{place}: {rule}{told}")

    def checked(self, model: type[Checked], value: object, *place: object) -> Checked | None:
        """Return `value` as `model`; None when it breaks rules, which are noted."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            for problem in error.errors():
                self._add_validation(place, problem)
        return None

    def refuse_if_any(self, next_step: str = _NEXT_STEP) -> None:
        """Raise what was noted.

        Raises:
            InvalidJobError: when anything was.
        """
        if not self.lines:
            return
        count = len(self.lines)
        if count == 1:
            raise InvalidJobError(f"{self.source}: {self.lines[0]}", next_step=next_step)
        # On one line, as the command line and logs show it; rules hold commas and semicolons, so each has a number.
        listed = " ".join(f"({number}) {line}" for number, line in enumerate(self.lines[:_SHOWN_PROBLEMS], start=1))
        more = f" and {count - _SHOWN_PROBLEMS} more" if count > _SHOWN_PROBLEMS else ""
        raise InvalidJobError(f"{self.source}: {count} problems: {listed}{more}", next_step=next_step)

    def _add_validation(self, place: tuple[object, ...], problem: Any) -> None:
        kind = problem["type"]
        rule = str(problem["ctx"]["error"]) if kind == "value_error" else _RULES.get(kind, problem["msg"])
        got = () if kind == "missing" else (problem["input"],)
        self.add(path_of((*place, *problem["loc"])) or "the document", rule, *got)


def refused(source: str, place: str, rule: str, *got: object, next_step: str = _NEXT_STEP) -> InvalidJobError:
    """Return the error of one problem."""
    problems = Problems(source)
    problems.add(place, rule, *got)
    return InvalidJobError(f"{source}: {problems.lines[0]}", next_step=next_step)


def path_of(parts: Iterable[object]) -> str:
    """Return the place of a value in a document: keys joined by dots, positions in brackets."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":
            name = redacted(str(part), limit_chars=_SHOWN_CHARS)
            name = name if name.isprintable() else repr(name)
            text += f".{name}" if text else name
    return text


def shown(value: object) -> str:
    """Return a value as a message shows it: short, and on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        return f"{redacted(repr(value), limit_chars=_SHOWN_CHARS)}, {len(value)} characters"
    return redacted(repr(value), limit_chars=_SHOWN_CHARS)


def team_slug(team: str) -> str:
    """Return the name of a team as folders, pools and payloads have it: `Robot Lab 2` is `robot_lab_2`.

    Empty when no letter or digit is left.
    """
    return slugify(team, separator="_")


def name_problem(name: str) -> str | None:
    """Return which rule the name of a team, task or pool breaks, None when it breaks none."""
    try:
        checked_text(name)
    except ValueError as error:
        return str(error)
    return None if 1 <= len(name) <= NAME_CHARS else f"must have 1 to {NAME_CHARS} characters"


def part_problem(name: str) -> str | None:
    """Return the same for a name that stands in paths."""
    try:
        checked_id(name)
    except ValueError as error:
        return str(error)
    return name_problem(name)
