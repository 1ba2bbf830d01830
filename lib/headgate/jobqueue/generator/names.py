"""Which names jobs, teams, tasks and servers may have: they stand in paths, tables and messages."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Final

from pydantic import AfterValidator
from slugify import slugify

MAX_NAME_CHARS: Final = 200
_UNSHOWABLE: Final = frozenset({"Cc", "Cs"})


def name_problem(name: str) -> str | None:
    """Return which rule a name breaks, None when it breaks none."""
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        return f"must have 1 to {MAX_NAME_CHARS} characters"
    if any(unicodedata.category(character) in _UNSHOWABLE for character in name):
        return "must hold no control character and no half of a surrogate pair"
    return None


def part_problem(name: str) -> str | None:
    """Return which rule a name breaks that stands in paths, None when it breaks none."""
    if "/" in name or "\\" in name or name in {".", ".."}:
        return "stands in paths and must not be . or .. or hold / or \\"
    return name_problem(name)


def team_slug(team: str) -> str:
    """Return the name of a team as folders, pools and payloads have it: `Robot Lab 2` is `robot_lab_2`.

    Empty when no letter or digit is left.
    """
    return slugify(team, separator="_")


def _name(value: str) -> str:
    if (problem := name_problem(value)) is not None:
        raise ValueError(problem)
    return value


def _part(value: str) -> str:
    if (problem := part_problem(value)) is not None:
        raise ValueError(problem)
    return value


Name = Annotated[str, AfterValidator(_name)]
PathPart = Annotated[str, AfterValidator(_part)]
