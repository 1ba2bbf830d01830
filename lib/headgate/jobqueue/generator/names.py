"""Names in files: which a team's folder has, and which rule one breaks that may stand in no path or table."""

from __future__ import annotations

from slugify import slugify

from headgate.jobqueue.names import NAME_CHARS, checked_id, checked_text


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
