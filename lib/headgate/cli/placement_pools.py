"""The file that `headgate placement up --pools` reads: pools, and the rules of preemption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headgate.placement.checks import PoolSpec, pool_spec
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.rules import PreemptionRules, rules_from


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """What a file of pools says; `rules` is None where it says nothing about them."""

    pools: tuple[PoolSpec, ...]
    rules: PreemptionRules | None = None


def read_placement_file(path: Path) -> PlacementFile:
    """Read a YAML or JSON file of `pools` and, where they are to be changed, `rules`.

    Raises:
        InvalidPlacementError: it cannot be read, or what it says cannot be used.
    """
    try:
        written: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidPlacementError(f"{path} cannot be read: {_reason(error)}") from error
    if not isinstance(written, Mapping) or not written.keys() <= {"pools", "rules"} or "pools" not in written:
        keys = ", ".join(map(str, written)) if isinstance(written, Mapping) else type(written).__name__
        raise InvalidPlacementError(f"{path} must have `pools` and may have `rules` (got {keys})")
    pools, rules = written["pools"], written.get("rules")
    if not isinstance(pools, list) or not all(isinstance(pool, Mapping) for pool in pools):
        raise InvalidPlacementError(f"`pools` of {path} must be a list of pools (got {pools!r})")
    if rules is not None and not isinstance(rules, Mapping):
        raise InvalidPlacementError(f"`rules` of {path} must be a mapping of settings (got {rules!r})")
    specs = tuple(pool_spec(pool) for pool in pools)
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidPlacementError(f"{path} has the pool {twice[0]} twice")
    return PlacementFile(specs, None if rules is None else rules_from(rules))


def _reason(error: OSError | UnicodeDecodeError | yaml.YAMLError) -> str:
    """Return what is wrong with a file, in one line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
