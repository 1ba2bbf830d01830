"""Values that settings give by environment: under its name, a pattern of names, or `*` for all others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

EVERYWHERE: Final = "*"
"""Stands for every environment that nothing else of a setting names."""

T = TypeVar("T")


def value_for(values: Mapping[str, T], environment: str) -> T | None:
    """Return the value of an environment: its own, else that of the longest pattern that matches it; None without."""
    if environment in values:
        return values[environment]
    patterns = [pattern for pattern in values if fnmatch.fnmatchcase(environment, pattern)]
    return values[max(patterns, key=lambda pattern: (len(pattern), pattern))] if patterns else None


def meaningless(values: Iterable[str], environments: Iterable[str]) -> list[str]:
    """Return the names and patterns that mean none of the environments, sorted; `*` always means something."""
    names = list(environments)
    return sorted(
        name
        for name in values
        if name != EVERYWHERE and not any(fnmatch.fnmatchcase(environment, name) for environment in names)
    )
