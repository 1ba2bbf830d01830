"""JSON files that people and other programs wrote: every problem is reported at once, and files are written whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from slugify import slugify

from headgate.core import redacted
from headgate.core.errors import some_of
from headgate.durable.files import write_whole
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.names import NAME_CHARS

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
    """What is wrong with one file or folder, in the order in which it was found."""

    source: str
    lines: list[str] = field(default_factory=list)

    def add(self, place: str, rule: str, *got: object) -> None:
        """Note that the value at `place` breaks `rule`; `got` is the value, left out if the rule shows it."""
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

    def refuse_if_any(self) -> None:
        """Raise the noted problems as one error.

        Raises:
            InvalidJobError: when there is any.
        """
        if not self.lines:
            return
        # On one line, as the command line and logs show it; rules hold commas and semicolons, so each has a number.
        listed = some_of([f"({number}) {line}" for number, line in enumerate(self.lines, 1)], _SHOWN_PROBLEMS, " ")
        said = self.lines[0] if len(self.lines) == 1 else f"{len(self.lines)} problems: {listed}"
        raise InvalidJobError(f"{self.source}: {said}", next_step=_NEXT_STEP)

    def _add_validation(self, place: tuple[object, ...], problem: Any) -> None:
        kind = problem["type"]
        rule = str(problem["ctx"]["error"]) if kind == "value_error" else _RULES.get(kind, problem["msg"])
        got = () if kind == "missing" else (problem["input"],)
        self.add(path_of((*place, *problem["loc"])) or "the document", rule, *got)


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
    """Return a team's name as folders, pools and payloads spell it: `Robot Lab 2` becomes `robot_lab_2`.

    Empty when no letter or digit is left.
    """
    return slugify(team, separator="_")


MAX_FILE_BYTES: Final = 512 * 1024 * 1024
"""A million jobs fit; anything larger is a mistake."""


def read_json(path: Path, what: str) -> Any:
    """Return the document of a file.

    Raises:
        InvalidJobError: if it cannot be read, is not JSON, names a field twice, or contains a value that is not JSON.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidJobError(f"{path}: is larger than {MAX_FILE_BYTES} bytes")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(
            f"{what} {path} cannot be read: {said}",
            next_step="Correct the path, or create the file: `headgate jobqueue generate` creates jobs and servers.",
        ) from None
    return parsed_json(data, str(path))


def parsed_json(data: bytes, source: str) -> Any:
    """Return the document in `data`.

    Raises:
        InvalidJobError: as `read_json`.
    """
    try:
        orjson.loads(data)  # stricter than json: no infinity, no unpaired surrogates
        return json.loads(data, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise InvalidJobError(
            f"{source}: line {error.lineno}, column {error.colno}: is not JSON: {error.msg}", next_step=_NEXT_STEP
        ) from None
    except ValueError as error:  # a field named twice, or an integer with thousands of digits
        raise InvalidJobError(f"{source}: {error}", next_step=_NEXT_STEP) from None
    except RecursionError:
        raise InvalidJobError(f"{source}: is nested too deeply", next_step=_NEXT_STEP) from None


def json_bytes(document: Any) -> bytes:
    """Return a document as it is written to files: deterministic bytes, with a newline at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files as `write_whole` does.

    Raises:
        InvalidJobError: if one cannot be written; then none was replaced, unless renaming itself failed.
    """
    try:
        write_whole(files)
    except (OSError, ValueError) as error:
        named = getattr(error, "filename", None) or ", ".join(str(path) for path in files)
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(
            f"{named} cannot be written: {said}", next_step="Choose a folder that can be written."
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"field {path_of([twice])} is named twice in one object; keep one of them")
    return document
