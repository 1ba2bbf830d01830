"""Which extra provides a package, for messages that say what to install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import lazy_loader  # type: ignore[import-untyped]

from headgate.core.errors import MissingExtraError

_EXTRAS: Final = {
    "aiohttp": ("run",),
    "botocore": ("run",),
    "cloudpickle": ("ray",),
    "duckdb": ("run",),
    "fastapi": ("run", "jobqueue"),
    "fsspec": ("run",),
    "jinja2": ("reports", "console"),
    "markupsafe": ("reports", "console"),
    "matplotlib": ("reports",),
    "msgpack": ("run", "jobqueue"),
    "numpy": ("run", "jobqueue"),
    "pandera": ("run",),
    "polars": ("run",),
    "prefect": ("prefect",),
    "prefect_ray": ("prefect-ray",),
    "prometheus_client": ("run", "jobqueue"),
    "psycopg": ("postgres",),
    "ray": ("ray",),
    "s3fs": ("run",),
    "slugify": ("jobqueue",),
    "sqlalchemy": ("prefect",),
    "starlette": ("run", "jobqueue"),
    "uvicorn": ("run", "jobqueue"),
    "websockets": ("jobqueue",),
    "yaml": ("run", "jobqueue"),
}
"""Package, by its import name -> extras that provide it, the most common one first."""


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group in the installed packages."""
    return tuple(_registered(tuple(sys.path)).select(group=group))


@cache
def _registered(_: tuple[str, ...]) -> Any:
    """Return the entry points of a path; looking for one group takes as long, and before 3.12 their type differs."""
    return entry_points()


def missing_extra(error: ImportError, feature: str) -> MissingExtraError | None:
    """Return the error for a missing package, None where no extra provides it.

    Args:
        error: the failed import's error.
        feature: what needs it; if its words name an extra that provides the package, that extra is suggested.
    """
    extras = _EXTRAS.get((error.name or "").partition(".")[0])
    if extras is None:
        return None
    words = feature.replace(".", " ").split()
    return MissingExtraError(feature, next((extra for extra in extras if extra in words), extras[0]))


def names_by_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub lists its names.

    A name is loaded on first use; `MissingExtraError` names the extra whose package is missing for it.
    """
    attribute, names, exported = lazy_loader.attach_stub(package, file)

    def loaded(name: str) -> Any:
        try:
            return attribute(name)
        except ModuleNotFoundError as missing:
            raise missing_extra(missing, f"{package}.{name}") or missing from missing

    return loaded, names, exported
