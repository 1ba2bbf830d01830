"""What the reference pages of rooms say about the errors that a room defines."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

from headgate.core.errors import HeadgateError


def errors_section(room: ModuleType) -> list[str]:
    """Return the lines of the section about the errors of a room: once per code, its sentence and what to do."""
    lines = ["", "## Errors"]
    described: set[str] = set()
    for cls in errors_of(room):
        if "code" in vars(cls) and cls.code not in described:  # others are kinds of an error that is described
            described.add(cls.code)
            statuses = f"Exit status {cls.exit_code}, HTTP {cls.http_status}."
            lines += ["", f"### `{cls.code}`", "", f"{_sentence(cls)} {statuses}", "", f"*Next:* {cls.next_step}"]
    return lines


def errors_of(room: ModuleType) -> list[type[HeadgateError]]:
    """Return every class of error that a room defines, by code."""
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
    found = {cls for cls in _descendants(HeadgateError) if cls.__module__.startswith(room.__name__)}
    return sorted(found, key=lambda cls: (cls.code, cls.__module__, cls.__name__))


def _descendants(cls: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    for inner in cls.__subclasses__():
        yield inner
        yield from _descendants(inner)


def _sentence(cls: type[HeadgateError]) -> str:
    return re.sub(r"\s+", " ", (inspect.getdoc(cls) or "").split("\n\n")[0]).strip()
