"""Tables of reference pages: what classes say about their own fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

HEAD: Final = ("", "| name | default | |", "|---|---|---|")


def fields_of_model(model: type[BaseModel], meanings: Mapping[str, str]) -> list[str]:
    """Return what a model is, and its fields with their defaults and meanings."""
    return [sentence(model), *table_of_model(model, meanings)]


def table_of_model(model: type[BaseModel], meanings: Mapping[str, str], leaving_out: Iterable[str] = ()) -> list[str]:
    """Return the fields of a model with their defaults and meanings; under the names in which files have them."""
    lines = list(HEAD)
    for name, field in model.model_fields.items():
        if name not in leaving_out:
            lines.append(f"| `{field.alias or name}` | {_default_of(field)} | {cell(meanings.get(name, ''))} |")
    return lines


def table_of_attributes(cls: type[Any], leaving_out: Iterable[str] = ()) -> list[str]:
    """Return the fields of a dataclass with their meanings."""
    meanings = meanings_of(cls)
    names = (field.name for field in dataclasses.fields(cls) if field.name not in leaving_out)
    return ["", "| field | |", "|---|---|", *(f"| `{name}` | {cell(meanings[name])} |" for name in names)]


def sentence(thing: object) -> str:
    """Return the docstring of something in one line."""
    return re.sub(r"\s+", " ", inspect.getdoc(thing) or "").strip()


def meanings_of(cls: type[Any]) -> dict[str, str]:
    """Return what the docstring of a class, and those of our own that it builds on, say about each attribute."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if one.__module__.startswith("headgate"):
            found |= _own_meanings(inspect.cleandoc(one.__dict__.get("__doc__") or ""))
    return found


def _own_meanings(doc: str) -> dict[str, str]:
    text = doc.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif line.startswith(" " * 8) and name:
            found[name] += f" {line.strip()}"
        else:
            break
    return found


def default(value: object) -> str:
    """Return a default as a table has it."""
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Mapping):
        return "`{" + ", ".join(f"{name}: {each}" for name, each in value.items()) + "}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text[:1].upper() + text[1:].replace("|", "\\|")


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    is_drawn = field.default_factory is not None and isinstance(value, str)
    return "none" if is_drawn else default(value)
