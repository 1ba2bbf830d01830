"""Hypothesis strategies that construct any event class from the types of its fields."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal

from hypothesis import strategies as st

from headgate.core import events


def event_classes() -> list[type[events.Event]]:
    """Return every event class, in the order of their names."""
    members = [value for _, value in inspect.getmembers(events, inspect.isclass)]
    return [cls for cls in members if issubclass(cls, events.Event) and cls is not events.Event]


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a dataclass: every field any value of its type, ugly ones included."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: _values(hints[field.name]) for field in dataclasses.fields(cls)})


_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(),
    float: st.floats(),
    bool: st.booleans(),
    type(None): st.none(),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, typing.NewType):
        return _values(hint.__supertype__)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if dataclasses.is_dataclass(hint):
        return instances(hint)
    return _generic(typing.get_origin(hint), typing.get_args(hint))


def _generic(origin: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin is Literal:
        return st.sampled_from(arguments)
    inner = [_values(argument) for argument in arguments if argument is not Ellipsis]
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*inner)
    if origin is tuple and Ellipsis not in arguments:
        return st.tuples(*inner)
    if origin in (tuple, list, Sequence):
        return st.lists(inner[0], max_size=3).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(*inner, max_size=3)
    if origin in (set, frozenset):
        return st.frozensets(inner[0], max_size=3)
    raise TypeError(f"no strategy for a field of type {origin}{arguments}: an event holds JSON-safe values only")
