"""Writing a result so that a file of its name is always a whole one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from headgate.core.errors import InvalidInputError


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, durably, and only then give it its name; the folder is made when it is missing.

    Raises:
        InvalidInputError: if it cannot be written there; what was there stays.
    """
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise InvalidInputError(
            f"the result cannot be written to {path}: {error.strerror or error}", next_step="Name another file."
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
