"""Dataclasses that are created once per sample or more often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Return a class as a slotted dataclass with a hash, whose fields only type checkers treat as read-only.

    For values made per sample: a dataclass that refuses assignments at run time takes three times as long to build.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
