"""The forms of names and texts that the job queue accepts, the same for every interface."""

from __future__ import annotations

import getpass
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from headgate.core import MAX_NAME_CHARS, checked_text

NAME_CHARS: Final = MAX_NAME_CHARS
"""Names appear in paths, file names, tables and metrics: longer ones are mistakes."""

OBJECT_BYTES: Final = 256 * 1024
"""A payload or result as JSON; anything larger belongs in a file that `result_ref` names."""

INSTANCE_SUFFIX: Final = "_template-tro_state.json"
"""The end of the names of test instances' files."""

_NUMBER: Final = re.compile(r"_([0-9]{1,18})$", re.ASCII)
_DEPTH: Final = 64


def checked_id(value: str) -> str:
    r"""Return a job id: a name that can be part of a path or a file name.

    Raises:
        ValueError: for `/`, `\`, `.` and `..`, besides what `checked_text` refuses.
    """
    if value in (".", "..") or "/" in value or "\\" in value:
        raise ValueError(f"must have no '/' or '\\' and not be '.' or '..' (got {value[:60]!r})")
    return checked_text(value)


def user_name(environ: Mapping[str, str]) -> str:
    """Return the name of the user who runs this process; empty in a container whose user id has no name."""
    try:
        return environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        return ""


def name_problem(name: str) -> str | None:
    """Return which rule the name of a team, task or pool breaks, None when it breaks none."""
    try:
        checked_text(name)
    except ValueError as error:
        return str(error)
    return None if 1 <= len(name) <= NAME_CHARS else f"must have 1 to {NAME_CHARS} characters"


def part_problem(name: str) -> str | None:
    """Return the same for a name that is part of paths, as job ids are."""
    try:
        checked_id(name)
    except ValueError as error:
        return str(error)
    return name_problem(name)


def number_in(instance: str) -> str | None:
    """Return the number at the end of an instance's name, or of its file's; None when there is none."""
    matched = _NUMBER.search(instance.removesuffix(INSTANCE_SUFFIX))
    return None if matched is None else matched[1]


def id_prefix(team: str) -> str:
    """Return the prefix of a team's job ids for a token bound to it, so that other teams' ids cannot be probed."""
    return team.replace("/", "_").replace("\\", "_") + "."


def checked_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object that can be stored.

    Raises:
        ValueError: when it is larger than `OBJECT_BYTES`, nested deeper than 64, or holds NaN or infinity.
    """
    _check_depth(value, _DEPTH)
    size = len(object_text(value).encode())
    if size > OBJECT_BYTES:
        raise ValueError(f"must be at most {OBJECT_BYTES} bytes as JSON (got {size})")
    return value


def object_text(value: dict[str, Any]) -> str:
    """Return a JSON object as text: compact, keys in the order given."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise ValueError(f"must be JSON without NaN and infinity ({error})") from None


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"must be nested at most {_DEPTH} deep")
    if isinstance(value, dict):
        for inner in value.values():
            _check_depth(inner, left - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_depth(inner, left - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must have no NaN or infinity (got {value})")
    elif isinstance(value, str) and "\x00" in value:
        raise ValueError("must have no NUL characters in its texts")


_TEXT: Final = r"[^\u0000-\u001f\u007f-\u009f]"
_ID: Final = r"^(?!\.{1,2}$)[^/\\\u0000-\u001f\u007f-\u009f]+$"
"""The same rules as patterns, for readers of the schema."""

_CHECKED: Final = AfterValidator(checked_text)
_MAYBE: Final[JsonDict] = {"pattern": f"^{_TEXT}*$"}

Name = Annotated[
    str, Field(min_length=1, max_length=NAME_CHARS, json_schema_extra={"pattern": f"^{_TEXT}+$"}), _CHECKED
]
"""A name of a team, task, pool, instance or worker."""

NameOrEmpty = Annotated[str, Field(max_length=NAME_CHARS, json_schema_extra=_MAYBE), _CHECKED]
"""The same, or empty."""

JobId = Annotated[
    str, Field(min_length=1, max_length=NAME_CHARS, json_schema_extra={"pattern": _ID}), AfterValidator(checked_id)
]
"""A job's id."""

Reference = Annotated[str, Field(max_length=2000, json_schema_extra=_MAYBE), _CHECKED]
"""A path or URL, or empty."""

JsonObject = Annotated[dict[str, Any], AfterValidator(checked_object)]
"""A payload or result."""
