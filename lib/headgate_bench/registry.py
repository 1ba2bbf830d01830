"""The registry: each module of `headgate_bench.scenarios` is a scenario, in one file; its first line says what."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from headgate.core import did_you_mean
from headgate.core.errors import InvalidInputError
from headgate_bench import scenarios
from headgate_bench.scenario import Scenario


def scenario_names() -> tuple[str, ...]:
    """Return the names of all scenarios, sorted; imports none of them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__)))


def scenario_summary(name: str) -> str:
    """Return what a scenario measures, in one line; imports nothing, since some stand on Ray and some on Prefect.

    Args:
        name: one of `scenario_names()`.
    """
    source = Path(scenarios.__path__[0], f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").removesuffix(".")


def scenario(name: str) -> Scenario[Any]:
    """Return a scenario.

    Raises:
        InvalidInputError: if there is none of that name.
    """
    names = scenario_names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise InvalidInputError(
            f"there is no benchmark {name!r}{hint}", next_step="`headgate bench list` lists them all."
        )
    found: Scenario[Any] = importlib.import_module(f"{scenarios.__name__}.{name}").SCENARIO
    return found
